//! Who may do what. Until there are rules, everybody may do everything; every row of the API table already says what it
//! would ask for.
//! Law: a yes or a no from what it is given; it looks nothing up.

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read,
    Write,
    Create,
    Delete,
    Alter,
    Describe,
    ClusterAction,
    DescribeConfigs,
    AlterConfigs,
    IdempotentWrite,
}

/// What it would be done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource<'a> {
    Cluster,
    Topic(&'a str),
    Group(&'a str),
    TransactionalId(&'a str),
}

/// The kind of a resource, as a row of the API table names it: the request names the resources themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceKind {
    /// Nothing is asked for: a client must be able to find out how to talk.
    Nothing,
    /// The cluster itself; checked before the handler is called.
    Cluster,
    /// Each topic the request names; checked by the handler, topic by topic.
    Topics,
    /// Each configured thing the request names; checked by the handler.
    Configs,
}

/// What a request needs to be allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    pub operation: Operation,
    pub resource: ResourceKind,
}

impl Needs {
    /// Nothing at all.
    pub const NOTHING: Self = Self {
        operation: Operation::Describe,
        resource: ResourceKind::Nothing,
    };

    /// To do that to the cluster.
    pub const fn cluster(operation: Operation) -> Self {
        Self {
            operation,
            resource: ResourceKind::Cluster,
        }
    }

    /// To do that to each topic named.
    pub const fn topics(operation: Operation) -> Self {
        Self {
            operation,
            resource: ResourceKind::Topics,
        }
    }

    /// To do that to each configured thing named.
    pub const fn configs(operation: Operation) -> Self {
        Self {
            operation,
            resource: ResourceKind::Configs,
        }
    }
}

/// Allows everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Authorizer;

impl Authorizer {
    /// Whether `principal` may do `operation` to `resource`.
    pub fn allows(&self, _principal: &str, _operation: Operation, _resource: Resource<'_>) -> bool {
        true
    }
}
