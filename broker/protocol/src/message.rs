//! The schema is the code: `message!` declares a struct and, beside each field, the versions that have it.
//! Law: a struct never recurses into itself, so the schema bounds the nesting; order of declaration is order on the wire.
//!
//! ```text
//! message! {
//!     /// What it is.
//!     FetchRequest (Fetch) {                                  // the API makes it a top-level message
//!         cluster_id: Option<String> [12..] tag 0,            // in the tagged section since version 12
//!         replica_id: i32 [..=14] = -1,                       // until version 14; −1 where absent
//!         topics: Vec<FetchTopic> [4..],
//!     }
//!     FetchTopic { topic: String [..=12], … }                 // nested: versions and form of the whole message
//! }
//! ```
//!
//! `null [1..]` after the versions of an `Option` says since when it may be null; without it, always. A field that a
//! version does not have is not written, and reads as its default.

use bytes::Bytes;
use uuid::Uuid;

use crate::api_key::ApiKey;
use crate::wire::{Decoder, Encoder, WireError};

/// A request or a response.
pub trait Message: Sized + Clone + Default + std::fmt::Debug + PartialEq {
    /// Which API it belongs to.
    const API: ApiKey;

    /// Writes the body in the form of `version`. Fields the version does not have are left out. Fails if the version
    /// is not known, a null is not allowed in it, or a value is too long for its length field.
    fn encode(&self, version: i16, out: &mut Encoder) -> Result<(), WireError>;

    /// Reads the body in the form of `version`; what follows it stays in `input`.
    fn decode(version: i16, input: &mut Decoder) -> Result<Self, WireError>;

    /// About how many bytes the body takes, to reserve them at once.
    fn size_hint(&self) -> usize;

    /// Tells every error code in it that is not 0, for who counts them.
    fn errors(&self, tell: &mut dyn FnMut(i16));
}

/// A request: it knows what answers it.
pub trait RequestMessage: Message {
    /// The answer.
    type Response: Message;
}

/// A value that a message can contain.
pub trait Field: Sized {
    /// The least it takes on the wire, in bytes; bounds the counts of arrays.
    const MIN_SIZE: usize = 1;

    /// Writes it.
    fn put(&self, version: i16, out: &mut Encoder) -> Result<(), WireError>;

    /// Reads it.
    fn get(version: i16, input: &mut Decoder) -> Result<Self, WireError>;

    /// About how many bytes it takes.
    fn size_hint(&self) -> usize {
        size_of::<Self>()
    }

    /// Whether it is a null, which some versions do not allow.
    fn is_null(&self) -> bool {
        false
    }

    /// Tells the error codes somewhere in it.
    fn errors(&self, _tell: &mut dyn FnMut(i16)) {}

    /// Tells it, if it is an error code itself: a field of that name.
    fn error(&self, _tell: &mut dyn FnMut(i16)) {}
}

macro_rules! plain_fields {
    ($($type:ty: $put:ident $get:ident,)+) => {$(
        impl Field for $type {
            const MIN_SIZE: usize = size_of::<Self>();

            fn put(&self, _: i16, out: &mut Encoder) -> Result<(), WireError> {
                out.$put(*self);
                Ok(())
            }

            fn get(_: i16, input: &mut Decoder) -> Result<Self, WireError> {
                input.$get()
            }
        }
    )+};
}

plain_fields! {
    bool: put_bool get_bool,
    i8: put_i8 get_i8,
    i32: put_i32 get_i32,
    i64: put_i64 get_i64,
    Uuid: put_uuid get_uuid,
}

impl Field for i16 {
    const MIN_SIZE: usize = size_of::<Self>();

    fn put(&self, _: i16, out: &mut Encoder) -> Result<(), WireError> {
        out.put_i16(*self);
        Ok(())
    }

    fn get(_: i16, input: &mut Decoder) -> Result<Self, WireError> {
        input.get_i16()
    }

    fn error(&self, tell: &mut dyn FnMut(i16)) {
        if *self != 0 {
            tell(*self);
        }
    }
}

impl Field for String {
    fn put(&self, _: i16, out: &mut Encoder) -> Result<(), WireError> {
        out.put_string(Some(self))
    }

    fn get(_: i16, input: &mut Decoder) -> Result<Self, WireError> {
        input.get_string()?.ok_or(WireError::UnexpectedNull)
    }

    fn size_hint(&self) -> usize {
        self.len() + 2
    }
}

impl Field for Option<String> {
    fn put(&self, _: i16, out: &mut Encoder) -> Result<(), WireError> {
        out.put_string(self.as_deref())
    }

    fn get(_: i16, input: &mut Decoder) -> Result<Self, WireError> {
        input.get_string()
    }

    fn size_hint(&self) -> usize {
        self.as_ref().map_or(0, String::len) + 2
    }

    fn is_null(&self) -> bool {
        self.is_none()
    }
}

impl Field for Option<Bytes> {
    fn put(&self, _: i16, out: &mut Encoder) -> Result<(), WireError> {
        out.put_shared_bytes(self.as_ref())
    }

    fn get(_: i16, input: &mut Decoder) -> Result<Self, WireError> {
        input.get_bytes()
    }

    fn size_hint(&self) -> usize {
        self.as_ref().map_or(0, Encoder::bytes_copied) + 5
    }

    fn is_null(&self) -> bool {
        self.is_none()
    }
}

impl<T: Field> Field for Vec<T> {
    fn put(&self, version: i16, out: &mut Encoder) -> Result<(), WireError> {
        out.put_count(Some(self.len()))?;
        self.iter()
            .try_for_each(|element| element.put(version, out))
    }

    fn get(version: i16, input: &mut Decoder) -> Result<Self, WireError> {
        Option::<Self>::get(version, input)?.ok_or(WireError::UnexpectedNull)
    }

    fn size_hint(&self) -> usize {
        self.iter().map(T::size_hint).sum::<usize>() + 5
    }

    fn errors(&self, tell: &mut dyn FnMut(i16)) {
        for element in self {
            element.errors(tell);
        }
    }
}

impl<T: Field> Field for Option<Vec<T>> {
    fn put(&self, version: i16, out: &mut Encoder) -> Result<(), WireError> {
        match self {
            None => out.put_count(None),
            Some(elements) => elements.put(version, out),
        }
    }

    fn get(version: i16, input: &mut Decoder) -> Result<Self, WireError> {
        let Some(count) = input.get_count(T::MIN_SIZE, size_of::<T>())? else {
            return Ok(None);
        };
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(T::get(version, input)?);
        }
        Ok(Some(elements))
    }

    fn size_hint(&self) -> usize {
        self.as_ref().map_or(5, Field::size_hint)
    }

    fn is_null(&self) -> bool {
        self.is_none()
    }

    fn errors(&self, tell: &mut dyn FnMut(i16)) {
        self.iter().for_each(|elements| elements.errors(tell));
    }
}

/// A nested struct, which may be missing altogether: one byte before it says so.
pub trait Struct: Field {}

impl<T: Struct> Field for Option<T> {
    fn put(&self, version: i16, out: &mut Encoder) -> Result<(), WireError> {
        match self {
            None => {
                out.put_i8(-1);
                Ok(())
            }
            Some(value) => {
                out.put_i8(1);
                value.put(version, out)
            }
        }
    }

    fn get(version: i16, input: &mut Decoder) -> Result<Self, WireError> {
        if input.get_i8()? < 0 {
            Ok(None)
        } else {
            T::get(version, input).map(Some)
        }
    }

    fn size_hint(&self) -> usize {
        self.as_ref().map_or(1, |value| value.size_hint() + 1)
    }

    fn is_null(&self) -> bool {
        self.is_none()
    }

    fn errors(&self, tell: &mut dyn FnMut(i16)) {
        self.iter().for_each(|value| value.errors(tell));
    }
}

/// Writes a field, unless it is a null that this version does not allow.
pub(crate) fn put_checked<T: Field>(
    value: &T,
    nullable: bool,
    version: i16,
    out: &mut Encoder,
) -> Result<(), WireError> {
    if value.is_null() && !nullable {
        return Err(WireError::UnexpectedNull);
    }
    value.put(version, out)
}

/// Reads a field, and refuses a null that this version does not allow.
pub(crate) fn get_checked<T: Field>(
    nullable: bool,
    version: i16,
    input: &mut Decoder,
) -> Result<T, WireError> {
    let value = T::get(version, input)?;
    if value.is_null() && !nullable {
        return Err(WireError::UnexpectedNull);
    }
    Ok(value)
}

/// Declares messages; the module's documentation has the grammar.
macro_rules! message {
    ($(
        $(#[$doc:meta])*
        $name:ident $(($api:ident))? {
            $(
                $(#[$field_doc:meta])*
                $field:ident: $type:ty [$versions:expr] $(null [$null:expr])? $(tag $tag:literal)? $(= $default:expr)?
            ),+ $(,)?
        }
    )+) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $(
                $(#[$field_doc])*
                #[doc = concat!(" Versions `", stringify!($versions), "`.")]
                pub $field: $type,
            )+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: message!(@default $($default)?),)+ }
            }
        }

        impl $crate::message::Field for $name {
            fn put(
                &self,
                version: i16,
                out: &mut $crate::wire::Encoder,
            ) -> Result<(), $crate::wire::WireError> {
                $(message!(@untagged $($tag)? => {
                    if ($versions).contains(&version) {
                        let nullable = message!(@nullable version $($null)?);
                        $crate::message::put_checked(&self.$field, nullable, version, out)?;
                    }
                });)+
                if out.flexible() {
                    #[allow(unused_variables)]
                    let default = Self::default();
                    #[allow(unused_mut)]
                    let mut tagged = $crate::wire::Tagged::new();
                    $($(
                        if ($versions).contains(&version)
                            && self.$field != default.$field
                        {
                            tagged.add($tag, |out| $crate::message::Field::put(&self.$field, version, out))?;
                        }
                    )?)+
                    tagged.write(out);
                }
                Ok(())
            }

            fn get(
                version: i16,
                input: &mut $crate::wire::Decoder,
            ) -> Result<Self, $crate::wire::WireError> {
                let mut value = Self::default();
                $(message!(@untagged $($tag)? => {
                    if ($versions).contains(&version) {
                        let nullable = message!(@nullable version $($null)?);
                        value.$field = $crate::message::get_checked(nullable, version, input)?;
                    }
                });)+
                if input.flexible() {
                    #[allow(unused_variables)]
                    input.get_tagged(|tag, input| {
                        $($(
                            if tag == $tag && ($versions).contains(&version) {
                                value.$field = $crate::message::Field::get(version, input)?;
                                return Ok(true);
                            }
                        )?)+
                        Ok(false)
                    })?;
                }
                Ok(value)
            }

            fn size_hint(&self) -> usize {
                1 $(+ $crate::message::Field::size_hint(&self.$field))+
            }

            fn errors(&self, tell: &mut dyn FnMut(i16)) {
                $(match stringify!($field) {
                    "error_code" => $crate::message::Field::error(&self.$field, tell),
                    _ => $crate::message::Field::errors(&self.$field, tell),
                })+
            }
        }

        impl $crate::message::Struct for $name {}

        message!(@message $name $($api)?);

        #[cfg(test)]
        impl $crate::messages::sample::Sample for $name {
            fn sample(version: i16, random: &mut $crate::messages::sample::Random) -> Self {
                let mut value = Self::default();
                $(if ($versions).contains(&version) {
                    let nullable = message!(@nullable version $($null)?);
                    value.$field = $crate::messages::sample::field(nullable, version, random);
                })+
                value
            }
        }
    )+};

    (@default) => { Default::default() };
    (@default $default:expr) => { $default };

    (@nullable $version:ident) => { true };
    (@nullable $version:ident $range:expr) => { ($range).contains(&$version) };

    (@untagged => $body:block) => { $body };
    (@untagged $tag:literal => $body:block) => {};

    (@message $name:ident) => {};
    (@message $name:ident $api:ident) => {
        impl $crate::message::Message for $name {
            const API: $crate::api_key::ApiKey = $crate::api_key::ApiKey::$api;

            fn encode(
                &self,
                version: i16,
                out: &mut $crate::wire::Encoder,
            ) -> Result<(), $crate::wire::WireError> {
                Self::API.check(version)?;
                out.set_flexible(Self::API.is_flexible(version));
                $crate::message::Field::put(self, version, out)
            }

            fn decode(
                version: i16,
                input: &mut $crate::wire::Decoder,
            ) -> Result<Self, $crate::wire::WireError> {
                Self::API.check(version)?;
                input.set_flexible(Self::API.is_flexible(version));
                $crate::message::Field::get(version, input)
            }

            fn size_hint(&self) -> usize {
                $crate::message::Field::size_hint(self)
            }

            fn errors(&self, tell: &mut dyn FnMut(i16)) {
                $crate::message::Field::errors(self, tell);
            }
        }
    };
}

pub(crate) use message;
