//! How a payload becomes bytes and bytes become a payload.

use std::{fmt, io};

use serde::Serialize;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor,
};
use serde_json::ser::{CompactFormatter, Formatter};

use crate::error::CodecError;
use crate::{Error, Result};

/// The deepest nesting of arrays and objects that can be read back.
const MAX_DEPTH: usize = 127;
const TOO_DEEP: &str = "it nests deeper than 127 arrays and objects";

/// Encodes a payload: exactly the bytes of `serde_json::to_vec`, or
/// [`Error::Codec`] where that fails, nests deeper than 127 containers or holds raw JSON that
/// could not be read back.
pub(crate) fn encode<P: Serialize + ?Sized>(payload: &P) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(128);
    write(&mut bytes, payload)?;
    Ok(bytes)
}

fn write<P: Serialize + ?Sized>(bytes: &mut Vec<u8>, payload: &P) -> Result<()> {
    let mut serializer = serde_json::Serializer::with_formatter(bytes, Shallow { depth: 0 });
    let written = payload.serialize(&mut serializer);
    written.map_err(|error| codec("the payload cannot be encoded", error))
}

/// Several payloads, encoded as by [`encode`], in one piece of memory.
pub(crate) struct Encoded {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Encoded {
    pub(crate) fn new<'p, P: Serialize + ?Sized + 'p>(
        payloads: impl ExactSizeIterator<Item = &'p P>,
    ) -> Result<Self> {
        let mut bytes = Vec::with_capacity(128 * payloads.len());
        let mut ends = Vec::with_capacity(payloads.len());
        for payload in payloads {
            write(&mut bytes, payload)?;
            ends.push(bytes.len());
        }
        Ok(Self { bytes, ends })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let payload = &self.bytes[start..*end];
            start = *end;
            payload
        })
    }
}

/// Decodes stored bytes; [`Error::Codec`] if they are not a `T`.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes)
        .map_err(|error| codec("the payload is not of the type that was asked for", error))
}

fn codec(context: &'static str, source: serde_json::Error) -> Error {
    Error::Codec(CodecError { context, source })
}

/// Reads JSON that was encoded before, as whoever decodes it would, and keeps nothing of it:
/// raw JSON can nest deeper, and hold numbers and strings, than can be read back.
struct Readable {
    depth: usize,
}

impl Readable {
    fn enter(self) -> Result<Self, &'static str> {
        match self.depth + 1 {
            depth if depth > MAX_DEPTH => Err(TOO_DEEP),
            depth => Ok(Self { depth }),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Readable {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Readable {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<X>(self) -> Result<(), X> {
        Ok(())
    }

    fn visit_bool<X>(self, _: bool) -> Result<(), X> {
        Ok(())
    }

    fn visit_i64<X>(self, _: i64) -> Result<(), X> {
        Ok(())
    }

    fn visit_u64<X>(self, _: u64) -> Result<(), X> {
        Ok(())
    }

    fn visit_f64<X>(self, _: f64) -> Result<(), X> {
        Ok(())
    }

    fn visit_str<X>(self, _: &str) -> Result<(), X> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Self { depth } = self.enter().map_err(A::Error::custom)?;
        while items.next_element_seed(Self { depth })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let Self { depth } = self.enter().map_err(A::Error::custom)?;
        while entries.next_key_seed(Self { depth })?.is_some() {
            entries.next_value_seed(Self { depth })?;
        }
        Ok(())
    }
}

/// Writes like the compact formatter and refuses to go too deep. Serialization recurses
/// only through this, so a value of any depth is refused before it can exhaust the stack.
struct Shallow {
    depth: usize,
}

impl Shallow {
    fn enter(&mut self) -> io::Result<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(io::Error::other(TOO_DEEP));
        }
        Ok(())
    }
}

impl Formatter for Shallow {
    fn begin_array<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.enter()?;
        CompactFormatter.begin_array(writer)
    }

    fn end_array<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        CompactFormatter.end_array(writer)
    }

    fn begin_object<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.enter()?;
        CompactFormatter.begin_object(writer)
    }

    fn end_object<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        CompactFormatter.end_object(writer)
    }

    fn write_raw_fragment<W: io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut fragments = serde_json::Deserializer::from_str(fragment);
        Readable { depth: self.depth }
            .deserialize(&mut fragments)
            .and_then(|()| fragments.end())
            .map_err(|error| io::Error::other(error.to_string()))?;
        CompactFormatter.write_raw_fragment(writer, fragment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serializer;
    use serde::ser::SerializeSeq;
    use serde_json::{Value, json};

    /// Arrays in arrays, made while they are written.
    struct Deep(usize);

    impl Serialize for Deep {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut seq = serializer.serialize_seq(None)?;
            if self.0 > 1 {
                seq.serialize_element(&Deep(self.0 - 1))?;
            }
            seq.end()
        }
    }

    #[test]
    fn the_bytes_are_those_of_serde_json() {
        #[derive(Serialize)]
        enum Shape {
            Unit,
            Tuple(i8, f64),
            Struct {
                name: &'static str,
                none: Option<u64>,
            },
        }
        let values = (
            json!({"b": [1, {}, []], "a": "\u{0}\u{7f}é🦀", "max": u64::MAX, "min": i64::MIN}),
            [
                Shape::Unit,
                Shape::Tuple(-1, 0.1),
                Shape::Struct {
                    name: "x\n",
                    none: None,
                },
            ],
            f64::NAN,
        );
        let plain = serde_json::to_vec(&values).expect("serde_json encodes it");
        assert_eq!(encode(&values).expect("so do we"), plain);
    }

    #[test]
    fn the_deepest_value_reads_back() {
        let bytes = encode(&Deep(127)).expect("127 levels are allowed");
        assert!(decode::<Value>(&bytes).is_ok());
        assert!(matches!(encode(&Deep(128)), Err(Error::Codec(_))));
    }

    #[test]
    fn a_very_deep_value_does_not_exhaust_the_stack() {
        assert!(matches!(encode(&Deep(100_000)), Err(Error::Codec(_))));
    }

    #[test]
    fn siblings_do_not_add_up() {
        let wide = vec![[[1u8]]; 1000];
        assert!(encode(&wide).is_ok());
    }
}
