//! Stories of one replica, told through its public face.
