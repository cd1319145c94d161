use super::sample::Sample;
use crate::message::Message;
pub(crate) trait Visitor {
    fn visit<M: Message + Sample>(&mut self, name: &str);
}
