//! Who leads. The partition has replicas 1,2,3 in that order, leader epoch 5 and partition epoch 7; who is named under
//! none of `active`, `draining`, `suspect`, `leaving` and `returning` is out. What a row does not say is not so;
//! min.insync.replicas is 1 unless `min` says otherwise.

use kuorum_metadata::PartitionImage;
use kuorum_metadata::control::election::{Policy, Standing, Terms, change, elect};
use kuorum_metadata::record::LeaderRecoveryState;
use kuorum_protocol::{BrokerId, LeaderEpoch, PartitionEpoch, TopicId};

use crate::world::{ids, list};

const ROWS: &str = "
    leader=1 isr=1,2,3 active=1,2,3                              => nothing
    leader=1 isr=1,2,3 active=1,2                                => isr=1,2
    leader=1 isr=1,2,3 active=2,3                                => leader=2 epoch+1 isr=2,3
    leader=1 isr=1,3   active=2,3                                => leader=3 epoch+1 isr=3
    leader=3 isr=3,2,1 active=2,1                                => leader=1 epoch+1 isr=2,1
    leader=2 isr=1,2,3 active=1,2,3                              => nothing
    leader=1 isr=1     active=2,3                                => leader=none epoch+1
    leader=1 isr=1,2   active=3                                  => leader=none epoch+1
    leader=none isr=1  active=2,3                                => nothing
    leader=none isr=1  active=1,2,3                              => leader=1 epoch+1
    leader=none isr=1,2,3 active=3                               => leader=3 epoch+1 isr=3
    leader=none isr=1,2,3 active=                                => nothing

    leader=1 isr=1,2,3 suspect=1 active=2,3                      => nothing
    leader=1 isr=1,2,3 suspect=1 active=3                        => nothing
    leader=1 isr=1,2,3 suspect=2,3 active=                       => leader=none epoch+1
    leader=1 isr=1,2,3 suspect=2 active=3                        => leader=3 epoch+1 isr=2,3
    leader=none isr=1,2 suspect=1,2 active=3                     => nothing

    leader=1 isr=1,2,3 leaving=1 active=2,3                      => leader=2 epoch+1 isr=2,3
    leader=1 isr=1,2,3 leaving=2 active=1,3                      => isr=1,3
    leader=1 isr=1     leaving=1 active=2,3                      => nothing
    leader=1 isr=1,2   leaving=1,2 active=3                      => isr=1
    leader=1 isr=1,2   leaving=1 active=3                        => isr=1
    leader=1 isr=1,2   leaving=1 suspect=2 active=3              => nothing
    leader=1 isr=1     leaving=1 active=2,3 policy=unclean       => nothing
    leader=none isr=1  leaving=1 active=2,3                      => nothing

    leader=1 isr=1     active=2,3 policy=unclean                 => leader=2 epoch+1 isr=2 recovering
    leader=none isr=1  active=3 policy=unclean                   => leader=3 epoch+1 isr=3 recovering
    leader=none isr=1  suspect=1 active=3 policy=unclean         => nothing
    leader=none isr=1  returning=1 active=3 policy=unclean       => nothing
    leader=1 isr=1     returning=1 active=3 policy=unclean       => leader=none epoch+1
    leader=1 isr=1,2,3 returning=1 active=2,3                    => leader=2 epoch+1 isr=2,3
    leader=1 isr=1,2,3 returning=3 active=1,2                    => isr=1,2
    leader=none isr=1,2 returning=1 active=2                     => leader=2 epoch+1 isr=2
    leader=1 isr=1,2   active=2,3 policy=unclean                 => leader=2 epoch+1 isr=2
    leader=none isr=1  active= policy=unclean                    => nothing

    leader=none isr= elr=3 active=2,3 min=2                      => leader=3 epoch+1 isr=3 elr=
    leader=none isr= elr=2,3 active=2,3 min=2                    => leader=2 epoch+1 isr=2 elr=3
    leader=none isr= elr=2,3 active=2,3 min=1                    => leader=2 epoch+1 isr=2 elr=
    leader=none isr= elr=3 active=1,2 min=2                      => nothing
    leader=none isr= elr=3 active=1,2 min=2 policy=unclean       => leader=1 epoch+1 isr=1 elr= recovering
    leader=none isr= active=1,2,3                                => nothing

    leader=1 isr=1,2,3 active=1,2 min=2                          => isr=1,2
    leader=1 isr=1,2,3 active=1 min=2                            => isr=1 elr=2,3
    leader=1 isr=1,2 active=1,3 min=2                            => isr=1 elr=2
    leader=1 isr=1 elr=2 active=1,2,3 min=2                      => nothing
    leader=1 isr=1 elr=2 active=1,2,3 min=1                      => elr=
    leader=1 isr=1,2 elr=3 active=1 min=3                        => isr=1 elr=2,3
    leader=1 isr=1 elr=2 active=3 min=2                          => leader=none epoch+1
    leader=1 isr=1 elr=2 active=2,3 min=2                        => leader=2 epoch+1 isr=2 elr=1
    leader=none isr=1 elr=2 active=2,3 min=2                     => leader=2 epoch+1 isr=2 elr=1
    leader=none isr=1 elr=2 active=1,2,3 min=2                   => leader=1 epoch+1
    leader=none isr=1 elr=2 returning=1 active=2 min=2           => leader=2 epoch+1 isr=2 elr=1
    leader=none isr=1 elr=2 suspect=1 active=2 min=2             => leader=2 epoch+1 isr=2,1 elr=
    leader=none isr=1 elr=2 suspect=2 active=3 min=2 policy=unclean   => nothing
    leader=none isr=1 elr=2 returning=2 active=3 min=2 policy=unclean => nothing
    leader=none isr=1 elr=2 active=3 min=2 policy=unclean        => leader=3 epoch+1 isr=3 elr= recovering
    leader=1 isr=1,2,3 active=3 min=2                            => leader=3 epoch+1 isr=3 elr=1,2
    leader=none isr=1,2,3 active=2 min=2                         => leader=2 epoch+1 isr=2 elr=1,3
    leader=1 isr=1 elr=2 leaving=1 active=2,3 min=2              => nothing
    leader=1 isr=1,2 leaving=1 active=2,3 min=2                  => leader=2 epoch+1 isr=2 elr=1

    leader=1 isr=1,2,3 draining=1 active=2,3                     => leader=2 epoch+1
    leader=1 isr=1,2,3 draining=2 active=1,3                     => nothing
    leader=1 isr=1 draining=1 active=2,3                         => nothing
    leader=1 isr=1,2 draining=1 active=3                         => isr=1
    leader=1 isr=1,2 draining=1,2 active=3                       => nothing
    leader=1 isr=1 elr=2 draining=1 active=2,3 min=2             => nothing
    leader=1 isr=1,2,3 draining=2 active=3                       => leader=3 epoch+1 isr=2,3
    leader=1 isr=1,2 draining=2 active=3                         => leader=2 epoch+1 isr=2
    leader=none isr=1 elr=2 draining=1 active=2 min=2            => leader=2 epoch+1 isr=2,1 elr=
    leader=none isr=1 elr=2 draining=2 active=3 min=2            => leader=2 epoch+1 isr=2 elr=1
    leader=1 isr=1,2 leaving=1 draining=2 active=3               => leader=2 epoch+1 isr=2
    leader=1 isr=1 draining=2 active=3 policy=unclean            => leader=3 epoch+1 isr=3 recovering
    leader=1 isr=1 draining=2 policy=unclean active=             => leader=2 epoch+1 isr=2 recovering

    leader=none isr= known=2,3 active=1,2,3                      => nothing
    leader=none isr= known=2,3 active=1,2,3 policy=unclean       => leader=3 epoch+1 isr=3 recovering
    leader=none isr= known=2,3 active=1,2 policy=unclean         => leader=2 epoch+1 isr=2 recovering
    leader=none isr= known=3 active=1,2 policy=unclean           => leader=1 epoch+1 isr=1 recovering
";

#[test]
fn rows() {
    for row in ROWS.lines().map(str::trim).filter(|row| !row.is_empty()) {
        let (given, expected) = row.split_once("=>").unwrap();
        assert_eq!(outcome(given), expected.trim(), "{row}");
    }
}

fn outcome(given: &str) -> String {
    let get = |key: &str| {
        let mut words = given.split_whitespace();
        words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    };
    let members = |key: &str| ids(get(key).unwrap_or_default());
    let partition = PartitionImage {
        replicas: ids("1,2,3"),
        directories: Vec::new(),
        isr: members("isr"),
        leader: get("leader").unwrap().parse().ok().map(BrokerId),
        leader_epoch: LeaderEpoch(5),
        partition_epoch: PartitionEpoch(7),
        leader_recovery_state: LeaderRecoveryState::Recovered,
        elr: members("elr"),
        last_known_elr: members("known"),
        last_unclean_epoch: None,
        adding_replicas: Vec::new(),
        removing_replicas: Vec::new(),
        original_replicas: Vec::new(),
    };
    let standing = |replica: BrokerId| {
        if members("active").contains(&replica) {
            Standing::Active
        } else if members("suspect").contains(&replica) {
            Standing::Suspect
        } else if members("draining").contains(&replica) {
            Standing::Draining
        } else if members("leaving").contains(&replica) {
            Standing::Leaving
        } else if members("returning").contains(&replica) {
            Standing::Returning
        } else {
            Standing::Out
        }
    };
    let policy = match get("policy") {
        Some("unclean") => Policy::Unclean,
        _ => Policy::Clean,
    };
    let terms = Terms {
        policy,
        min_isr: get("min").map_or(1, |min| min.parse().unwrap()),
    };
    let elected = elect(&partition, standing, terms);
    let Some(change) = change(TopicId::ZERO, 0, &partition, &elected, "test") else {
        return "nothing".to_owned();
    };
    assert_eq!(change.partition_epoch, PartitionEpoch(8));
    let mut words = Vec::new();
    if let Some(leader) = change.leader {
        words.push(match leader {
            Some(leader) => format!("leader={leader}"),
            None => "leader=none".to_owned(),
        });
    }
    if let Some(epoch) = change.leader_epoch {
        words.push(format!("epoch+{}", epoch.0 - 5));
    }
    words.extend(change.isr.map(|isr| format!("isr={}", list(&isr))));
    words.extend(change.elr.map(|elr| format!("elr={}", list(&elr))));
    if change.leader_recovery_state == Some(LeaderRecoveryState::Recovering) {
        assert_eq!(change.last_unclean_epoch, Some(LeaderEpoch(6)));
        assert_eq!(
            change.cause,
            "unclean election, which the topic allows: test"
        );
        words.push("recovering".to_owned());
    }
    words.join(" ")
}
