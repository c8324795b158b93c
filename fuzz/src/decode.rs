//! The target `decode`.

use anteros_codec::{
    Algorithm, Decoder, Length, Params, RollingWindow, Stream, fits_in_place, in_place_margin,
};

/// The most bytes that are wanted of a stream.
const WANTED_MAX: usize = 300_000;
/// States what the output holds before, once each: nothing of it may be there afterwards.
const CANARIES: [u8; 2] = [0x55, 0xAA];

/// Decodes a stream in every way there is, each twice into outputs that held something else before: byte 0 says which
/// codec, bytes 1 to 3 how many bytes are wanted, the rest is the stream.
///
/// Both times the same comes out; and all ways that accept a stream agree.
pub fn decode(input: &[u8]) {
    let [algorithm, low, middle, high, stream @ ..] = input else {
        return;
    };
    let algorithm = Algorithm::ALL[usize::from(*algorithm) % Algorithm::ALL.len()];
    let wanted = u32::from_le_bytes([*low, *middle, *high, 0]) as usize % WANTED_MAX;
    let front = twice(wanted, |out| whole(algorithm, stream, out, Length::AtLeast));
    let exact = twice(wanted, |out| whole(algorithm, stream, out, Length::Exact));
    if let (Some(front), Some(exact)) = (&front, &exact) {
        assert!(front == exact, "{algorithm}");
    }
    match algorithm {
        Algorithm::Lz4 => {
            let rolled = twice(wanted.min(RollingWindow::KEPT_MAX), |out| {
                roll(stream, wanted, out)
            });
            if let (Some(front), Some(rolled)) = (&front, &rolled) {
                assert!(front.ends_with(rolled), "rolling");
            }
            let in_place = twice(wanted, |out| over_itself(stream, out));
            if let (Some(exact), Some(in_place)) = (&exact, &in_place) {
                assert!(exact == in_place, "in place");
            }
        }
        _ => drop(twice(wanted, |out| in_steps(algorithm, stream, out))),
    }
}

/// Returns what a way to decode makes of two outputs, if it accepts the stream.
fn twice(wanted: usize, way: impl Fn(&mut [u8]) -> bool) -> Option<Vec<u8>> {
    let [first, second] = CANARIES.map(|canary| {
        let mut out = vec![canary; wanted];
        way(&mut out).then_some(out)
    });
    assert!(first == second, "bytes of the output are left as they were");
    first
}

fn whole(algorithm: Algorithm, stream: &[u8], out: &mut [u8], length: Length) -> bool {
    let mut decoder = Decoder::new();
    let done = decoder.decode(algorithm, &Params::default(), stream, out, length);
    done.is_ok()
}

fn roll(stream: &[u8], wanted: usize, out: &mut [u8]) -> bool {
    let mut window = RollingWindow::new(WANTED_MAX, stream.len()).expect("there is memory");
    // The pages of the window hold what the output held.
    let canary = out.first().copied().unwrap_or_default();
    let filling = [
        &[0x1F, canary, 1, 0],
        &[255; 600][..],
        &[0, 0x50],
        &[canary; 5],
    ]
    .concat();
    let _ = window.decode(&filling, 0, &mut vec![0; 130_000]);
    window.decode(stream, wanted - out.len(), out).is_ok()
}

fn over_itself(stream: &[u8], out: &mut [u8]) -> bool {
    let margin = in_place_margin(Algorithm::Lz4, stream.len()).expect("LZ4 has one");
    let end = (out.len() + margin).max(stream.len());
    let mut buf = out.to_vec();
    buf.resize(end, 0);
    let place = end - stream.len()..end;
    // What the stream lies over is the stream, and is not compared.
    buf[place.clone()].copy_from_slice(stream);
    assert!(fits_in_place(Algorithm::Lz4, &place, out.len()));
    let done = Decoder::new().decode_in_place(Algorithm::Lz4, &mut buf, place, out.len());
    out.copy_from_slice(&buf[..out.len()]);
    done.is_ok()
}

fn in_steps(algorithm: Algorithm, stream: &[u8], out: &mut [u8]) -> bool {
    let Ok(mut decoder) = Stream::new(algorithm, &Params::default(), stream.len(), out.len())
    else {
        return false;
    };
    let mut pieces = out.chunks_mut(1000);
    pieces.all(|piece| decoder.next(stream, piece).is_ok())
}
