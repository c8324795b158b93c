//! Browsers without a window, on a new profile, that read pages.
//!
//! All they ask for goes to a server of ours, as their proxy: it has the pages, and refuses all else. A page puts
//! something into each kind of storage, and leads to the next.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::pictures::pictures;
use super::text::Text;
use crate::bench::random::Random;
use crate::outcome::Outcome;
use crate::record::Recorder;
use crate::run::run;

const PAGES: usize = 100;
/// States how long all pages may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// States what is still to be written when the last page is there.
const AFTERWARDS: Duration = Duration::from_secs(5);

/// A browser, as the distribution has it.
pub(super) struct Browser {
    program: &'static str,
    arguments: fn(&Path, SocketAddr) -> Vec<String>,
    /// Holds what is put into `user.js` of the profile.
    settings: Option<fn(SocketAddr) -> String>,
}

pub(super) const CHROMIUM: Browser = Browser {
    program: "chromium",
    arguments: |profile, proxy| {
        let mut arguments: Vec<String> = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ]
        .map(str::to_owned)
        .into();
        arguments.push(format!("--user-data-dir={}", profile.display()));
        arguments.push(format!("--proxy-server=http://{proxy}"));
        arguments
    },
    settings: None,
};

pub(super) const FIREFOX: Browser = Browser {
    program: "firefox-esr",
    arguments: |profile, _| {
        let profile = profile.display().to_string();
        vec![
            "--headless".to_owned(),
            "--no-remote".to_owned(),
            "--profile".to_owned(),
            profile,
        ]
    },
    settings: Some(firefox_settings),
};

/// The proxy for everything, and nothing asked for that nobody wants to see.
fn firefox_settings(proxy: SocketAddr) -> String {
    let (address, port) = (proxy.ip(), proxy.port());
    let mut settings = String::new();
    for (name, value) in [
        ("network.proxy.type", "1".to_owned()),
        ("network.proxy.http", format!("\"{address}\"")),
        ("network.proxy.http_port", port.to_string()),
        ("network.proxy.ssl", format!("\"{address}\"")),
        ("network.proxy.ssl_port", port.to_string()),
        ("network.trr.mode", "5".to_owned()),
        ("network.captive-portal-service.enabled", "false".to_owned()),
        ("network.connectivity-service.enabled", "false".to_owned()),
        (
            "datareporting.policy.dataSubmissionEnabled",
            "false".to_owned(),
        ),
        ("browser.shell.checkDefaultBrowser", "false".to_owned()),
        ("app.update.enabled", "false".to_owned()),
    ] {
        let _ = writeln!(settings, "user_pref(\"{name}\", {value});");
    }
    settings
}

/// Has a browser read all pages in the directory of a recorder.
///
/// # Errors
/// When it is missing, or does not get to the end.
pub(super) fn visit(recorder: &Recorder, browser: &Browser) -> Outcome {
    run(Command::new("scripts/browser.sh").arg(browser.program))?;
    let site = Arc::new(Site::new(&Text::read()?, pictures()?));
    let (address, last_page) = serve(site)?;
    let profile = recorder.directory().join("profile");
    fs::create_dir(&profile)?;
    if let Some(settings) = browser.settings {
        fs::write(profile.join("user.js"), settings(address))?;
    }
    let mut words = vec![browser.program.to_owned()];
    words.extend((browser.arguments)(&profile, address));
    words.push("http://news.example/0".to_owned());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut command = recorder.command(&words);
    let mut running = Running(
        command
            .env("HOME", recorder.directory())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?,
    );
    last_page.recv_timeout(PATIENCE).map_err(|_| {
        format!(
            "{}: not all pages were read within {PATIENCE:?}",
            browser.program
        )
    })?;
    thread::sleep(AFTERWARDS);
    running.end()
}

/// A browser that runs, until dropped.
struct Running(Child);

impl Running {
    /// Asks it to end, and waits for that.
    fn end(&mut self) -> Outcome {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, Signal::TERM)?;
        let start = Instant::now();
        while self.0.try_wait()?.is_none() {
            if start.elapsed() > PATIENCE {
                return Err("the browser does not end".into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// All pages and pictures.
struct Site {
    pages: Vec<String>,
    pictures: Vec<PathBuf>,
}

impl Site {
    fn new(text: &Text, pictures: Vec<PathBuf>) -> Self {
        let random = &mut Random::new(4);
        let page = |number| page(number, text, random);
        Self {
            pages: (0..PAGES).map(page).collect(),
            pictures,
        }
    }

    /// Returns what there is under a path: its type and the bytes.
    fn get(&self, path: &str) -> Option<(&'static str, Vec<u8>)> {
        if let Some(number) = path.strip_prefix("/picture/") {
            let picture = self.pictures.get(number.parse::<usize>().ok()?)?;
            return Some(("image/png", fs::read(picture).ok()?));
        }
        let page = self
            .pages
            .get(path.strip_prefix('/')?.parse::<usize>().ok()?)?;
        Some(("text/html; charset=utf-8", page.clone().into_bytes()))
    }
}

fn page(number: usize, text: &Text, random: &mut Random) -> String {
    let who = number as u64;
    let title: String = text.say(who, random).chars().take(50).collect();
    let paragraphs = 5 + random.below(30);
    let told = text
        .tell(who, paragraphs, random)
        .replace('<', "&lt;")
        .replace("\n\n", "<p>");
    let next = number + 1;
    format!(
        "<!doctype html><title>{title}</title><h1>{title}</h1><img src=/picture/{number}><p>{told}
        <script>
        localStorage.setItem(location.pathname, document.title);
        document.cookie = 'page{number}=seen; max-age=999999';
        const opening = indexedDB.open('notes', 1);
        opening.onupgradeneeded = () => opening.result.createObjectStore('notes');
        opening.onsuccess = () => {{
            const change = opening.result.transaction('notes', 'readwrite');
            change.objectStore('notes').put(document.body.innerText, location.pathname);
            change.oncomplete = () => setTimeout(() => {{ location = '/{next}'; }}, 250);
        }};
        </script>"
    )
}

/// Serves a site, and tells when the page behind the last one is asked for.
fn serve(site: Arc<Site>) -> Outcome<(SocketAddr, Receiver<()>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let (is_last, last_page) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (site, is_last) = (site.clone(), is_last.clone());
            // Whoever hangs up gets no answer.
            thread::spawn(move || drop(answer(stream, &site, &is_last)));
        }
    });
    Ok((address, last_page))
}

fn answer(mut stream: TcpStream, site: &Site, is_last: &Sender<()>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let path = path_of(&request);
    if path == Some(&*format!("/{PAGES}")) {
        let _ = is_last.send(());
    }
    let (status, kind, body) = match path.and_then(|path| site.get(path)) {
        Some((kind, body)) => ("200 OK", kind, body),
        None => ("404 Not Found", "text/plain", b"no such page".to_vec()),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nCache-Control: max-age=86400\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    stream.write_all(&body)
}

/// The path of a page of ours, of the first line of a request to a proxy.
fn path_of(request: &str) -> Option<&str> {
    let url = request.strip_prefix("GET ")?.split(' ').next()?;
    url.strip_prefix("http://news.example")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_pages_have_a_path() {
        assert_eq!(path_of("GET http://news.example/7 HTTP/1.1"), Some("/7"));
        assert_eq!(path_of("GET http://elsewhere.example/7 HTTP/1.1"), None);
        assert_eq!(path_of("CONNECT elsewhere.example:443 HTTP/1.1"), None);
    }
}
