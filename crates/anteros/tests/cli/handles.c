/* Writes the file handle of a path to a file, or opens what such a file names and shows it. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

union handle {
	struct file_handle handle;
	unsigned char bytes[sizeof(struct file_handle) + MAX_HANDLE_SZ];
};

static int save(const char *path, const char *to)
{
	union handle kept;
	int mount, out;

	memset(&kept, 0, sizeof(kept));
	kept.handle.handle_bytes = MAX_HANDLE_SZ;
	if (name_to_handle_at(AT_FDCWD, path, &kept.handle, &mount, 0))
		return errno;
	out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (out < 0 || write(out, kept.bytes, sizeof(kept.bytes)) != sizeof(kept.bytes))
		return errno;
	return 0;
}

static int show(const char *mount, const char *from)
{
	union handle kept;
	char content[4096];
	ssize_t len;
	int in = open(from, O_RDONLY), place = open(mount, O_RDONLY), file;

	if (in < 0 || place < 0 || read(in, kept.bytes, sizeof(kept.bytes)) != sizeof(kept.bytes))
		return 255;
	file = open_by_handle_at(place, &kept.handle, O_RDONLY);
	if (file < 0)
		return errno;
	len = read(file, content, sizeof(content));
	if (len < 0 || write(STDOUT_FILENO, content, len) != len)
		return errno;
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 255;
	return strcmp(argv[1], "save") ? show(argv[2], argv[3]) : save(argv[2], argv[3]);
}
