//! The ways in which a [`Reference`](super::Reference) can be made wrong.

macro_rules! faults {
    ($($(#[$doc:meta])* $fault:ident,)*) => {
        /// One rule of the contract that an engine breaks.
        ///
        /// Each is a mistake that an engine's author could make. The suite is good enough
        /// when it notices every one of them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Fault {
            $($(#[$doc])* $fault,)*
        }

        impl Fault {
            /// Every fault there is.
            pub const ALL: &'static [Self] = &[$(Self::$fault),*];
        }
    };
}

faults! {
    // Payloads.
    /// Payloads are decoded and encoded again on their way in.
    PayloadReencoded,
    /// Payloads are cut where a small column would end.
    PayloadCut,

    // The store.
    /// Closing leaves receivers waiting.
    CloseLeavesReceivers,
    /// Closing one store closes the receivers of all on the database.
    CloseClosesOthers,
    /// Two stores on one database give out ids of their own.
    StoresSeeOnlyThemselves,
    /// Receivers wait for a source that is gone.
    RemovedSourceLeavesReceivers,

    // Transactions.
    /// A rollback leaves the jobs.
    RollbackKeepsJobs,
    /// A rollback leaves the events.
    RollbackKeepsEvents,
    /// A rollback leaves the saved offsets.
    RollbackKeepsOffsets,
    /// A rollback leaves the business rows.
    RollbackKeepsRows,
    /// A rollback sends the wakes.
    RollbackKeepsWakes,
    /// A dropped transaction commits.
    DropCommits,
    /// A dropped transaction keeps the writer.
    DropKeepsWriter,
    /// A commit leaves the business rows behind.
    CommitLosesRows,
    /// A commit sends no wakes.
    CommitLosesWakes,
    /// Wakes go out before the commit.
    WakesBeforeCommit,
    /// Reads in a transaction do not see its own writes.
    TxReadsOnlyCommitted,
    /// Other connections see what is not committed.
    UncommittedIsVisible,
    /// An ack in a transaction lands at once.
    AckTxLandsAtOnce,
    /// An ack in a transaction does not look at the claim's deadline.
    AckTxIgnoresDeadline,
    /// In a transaction of the application's each operation commits by itself.
    JoinedTxCommitsAtOnce,
    /// A second writer waits for ever.
    BusyWaitsForEver,
    /// A writer that is not free in time is no transient error.
    BusyIsPermanent,

    // Wakes.
    /// A notify wakes nobody.
    NotifyWakesNobody,
    /// A notify wakes the listeners of every channel.
    NotifyWakesEveryChannel,
    /// A wake reaches topics of the same name and another kind.
    WakesCrossKinds,
    /// A wake stays in the process it came from.
    WakesStayInTheProcess,
    /// A receiver hears what was sent before it listened.
    ListenHearsThePast,
    /// Channels whose long names begin alike are one.
    LongChannelsAreCut,
    /// A publish wakes nobody.
    PublishWakesNobody,
    /// An enqueue wakes nobody.
    EnqueueWakesNobody,
    /// A job that is ready again wakes nobody.
    RetryWakesNobody,

    // Streams.
    /// An offset that a rollback took is not given again.
    OffsetsHaveHoles,
    /// Streams whose names differ in case are one.
    StreamsFoldCase,
    /// All streams count in one row of numbers.
    StreamsShareOffsets,
    /// Once everything was trimmed, offsets start again.
    OffsetsReusedAfterTrim,
    /// A batch gets its offsets in the opposite order.
    PublishBatchReversed,
    /// Reads come back from the end.
    ReadDescending,
    /// A read starts at the offset given, not after it.
    ReadInclusive,
    /// A read takes no notice of its limit.
    ReadIgnoresLimit,
    /// A page of a subscription is as large as its events are.
    PageIgnoresBytes,
    /// A read finds the events of every stream.
    ReadCrossesStreams,
    /// A consumer's read takes no notice of its saved offset.
    ReadIgnoresConsumer,
    /// Keys are not stored.
    KeyLost,
    /// No key becomes an empty key.
    KeyBlank,
    /// Events do not say when they were published.
    EventTimeForgotten,
    /// A saved offset moves backwards.
    SavedOffsetMovesBack,
    /// A save says that it moved the offset when it did not.
    SaveAlwaysMoves,
    /// A save says that it moved nothing when it did.
    SaveNeverMoves,
    /// A transaction that reads a consumer's offset lets others read and save it.
    ConsumerIsNotHeld,
    /// A negative offset is saved.
    NegativeSaveStored,
    /// An offset beyond the head is saved as the head.
    SaveStopsAtHead,
    /// All consumers of a stream share one offset.
    ConsumersShareOffset,
    /// A consumer has one offset for all streams.
    StreamsShareConsumers,
    /// A trim leaves the horizon itself.
    TrimExclusive,
    /// A trim says the horizon instead of how many it deleted.
    TrimMiscounts,
    /// A trim forgets what the consumers saved.
    TrimForgetsConsumers,
    /// A trim takes the events of other streams.
    TrimCrossesStreams,
    /// A trim is one commit, however much there is.
    TrimInOneStep,
    /// A trim ends after its first step.
    TrimStopsEarly,
    /// A trim wakes the stream.
    TrimWakes,

    // Queues: what is stored.
    /// A delay counts from the epoch.
    DelayAbsolute,
    /// A delay is ignored.
    DelayIgnored,
    /// A time in the past is stored as now.
    RunAtNotBeforeNow,
    /// A priority has 32 bits.
    PriorityNarrowed,
    /// An expiry counts from the epoch.
    ExpiresAbsolute,
    /// Sums beyond the ends of `i64` wrap around.
    OverflowWraps,
    /// The visibility timeout is not stamped.
    VisibilityForgotten,
    /// The most attempts are not stamped.
    MaxAttemptsForgotten,
    /// The backoff base is not stamped.
    BackoffForgotten,
    /// The retention is not stamped.
    RetentionForgotten,
    /// Jobs do not say when they were enqueued.
    CreatedAtForgotten,
    /// A batch gets its ids in the opposite order.
    EnqueueBatchReversed,
    /// The id of a job that is gone is given again.
    IdsReused,
    /// A job is found by its id in any queue.
    FindCrossesQueues,

    // Queues: claims.
    /// A job that is held is handed out again.
    ClaimTakesHeld,
    /// A claim finds the jobs of every queue.
    ClaimCrossesQueues,
    /// A claim takes no notice of the priority.
    ClaimIgnoresPriority,
    /// A claim hands out low priorities first.
    ClaimTakesLowFirst,
    /// A claim takes no notice of when jobs became ready.
    ClaimIgnoresRunAt,
    /// Of equal jobs the newest goes first.
    ClaimTakesNewest,
    /// A batch comes back in the opposite order.
    ClaimBatchReversed,
    /// A claim hands out one job more than was asked for.
    ClaimTakesOneMore,
    /// A claim hands out jobs before their time.
    ClaimTakesUnready,
    /// A job is not yet ready in the second it is due.
    ReadyExclusive,
    /// A claim hands out expired jobs.
    ClaimTakesExpired,
    /// A claim passes expired jobs by and leaves them alive.
    ClaimLeavesExpired,
    /// A job is not yet expired in the second of its expiry.
    ExpiryExclusive,
    /// A claim makes one expired job dead and no more.
    ClaimBuriesOneExpired,
    /// An expired job does not say what it died of.
    ExpiredDiesUnsaid,
    /// A claim hands out dead jobs.
    ClaimTakesDead,
    /// A claim does not count an attempt.
    ClaimForgetsAttempt,
    /// A claim does not say who holds it.
    WorkerForgotten,
    /// A claim does not say when it was made.
    ClaimedAtForgotten,
    /// A claim holds for the default time, whatever the job says.
    ClaimIgnoresVisibility,
    /// A claim forgets what the attempt before it said.
    ClaimForgetsError,
    /// Jobs that were claimed for a dropped call stay claimed.
    DroppedClaimsStay,
    /// Jobs that were claimed for a dropped call come back with an attempt spent.
    DroppedClaimsCount,
    /// Lapsed claims never end.
    ReclaimNever,
    /// A claim ends one lapsed claim and no more.
    ClaimEndsOneLapsed,
    /// A claim lapses in the second of its deadline.
    ClaimLapsesEarly,
    /// A claim lapses a second late.
    ClaimLapsesLate,
    /// A claim of a lapsed job does not count an attempt.
    ReclaimForgetsAttempt,
    /// A lapsed job without attempts left is handed out again.
    ExhaustedIsHandedOut,
    /// A lapsed job without attempts left stays as it is.
    ExhaustedStaysAlive,
    /// A job that ran out of attempts does not say so.
    ExhaustedDiesUnsaid,

    // Queues: handles.
    /// A handle acts on whatever claim there is now.
    StaleHandleActs,
    /// A handle acts after the deadline.
    LapsedHandleActs,
    /// An acked job stays.
    AckKeepsJob,
    /// An ack makes the job dead instead of deleting it.
    AckBuries,
    /// One refused claim refuses its whole batch.
    AckBatchAllOrNothing,
    /// A heartbeat adds to the deadline.
    HeartbeatAdds,
    /// A heartbeat revives a lapsed claim.
    HeartbeatRevives,
    /// A heartbeat extends whatever claim there is now.
    HeartbeatOfStaleHandle,
    /// A heartbeat says that it landed and did not.
    HeartbeatIgnored,
    /// A retried job is ready at once.
    RetryIgnoresDelay,
    /// A retry counts its delay from when the job was first ready.
    RetryAddsToRunAt,
    /// A retry does not store the error.
    RetryDropsError,
    /// A retry gives the attempt back.
    RetryRefundsAttempt,
    /// A retried job still says who holds it.
    RetryKeepsWorker,
    /// A retried job still has a deadline.
    RetryKeepsDeadline,
    /// A failed job does not store the error.
    FailDropsError,
    /// A dead job does not say when it died.
    DiedAtForgotten,
    /// A dead job does not say who held it last.
    DeadForgetsWorker,
    /// Dead jobs cannot be looked at.
    DeadAreInvisible,

    // Queues: cancel and sweep.
    /// A cancel leaves jobs that are held.
    CancelMissesHeld,
    /// A cancel takes dead jobs too.
    CancelTakesDead,
    /// A cancel takes jobs of other queues.
    CancelCrossesQueues,
    /// A sweep leaves jobs that are held.
    SweepMissesHeld,
    /// A sweep says that it did nothing.
    SweepCountsNothing,
    /// A sweep deletes expired jobs instead of making them dead.
    SweepDeletesExpired,
    /// A sweep reaches other queues.
    SweepCrossesQueues,
    /// A sweep deletes dead jobs before their time.
    SweepPurgesEarly,
    /// A sweep deletes dead jobs that are to be kept for ever.
    SweepPurgesUnstamped,
    /// A sweep deletes no dead jobs.
    SweepNeverPurges,
    /// A sweep is one commit, however much there is.
    SweepInOneStep,
    /// A sweep ends after its first step.
    SweepStopsEarly,
    /// A claim makes expired jobs dead, however many there are.
    ClaimAlwaysBuries,

    // Locks.
    /// A lock is given to two owners.
    LockGivenTwice,
    /// All locks are one.
    LocksShareName,
    /// Locks whose names differ in blanks at the end are one.
    LockNamesTrimmed,
    /// A lock lapses in the second of its deadline.
    LockLapsesEarly,
    /// A lock lapses a second late.
    LockLapsesLate,
    /// The owner itself is refused.
    SameOwnerRefused,
    /// Asking again lengthens the lease.
    ReaskLengthens,
    /// Asking again gives another token.
    ReaskChangesToken,
    /// A token is given again after a release.
    TokenReused,
    /// A renewal adds to the deadline.
    RenewAdds,
    /// A renewal revives a lapsed lock.
    RenewRevives,
    /// A renewal with an old token extends another's lock.
    StaleTokenRenews,
    /// A release with an old token frees another's lock.
    StaleTokenReleases,
    /// A release of a lapsed lock says that it landed.
    LapsedLockReleases,
    /// A release says that it landed and did not.
    ReleaseIgnored,
    /// An acquisition goes on although another came between.
    ResumeTakesBack,
    /// An acquisition that has lapsed cannot go on although none came between.
    LapsedLockEnds,

    // Schedules.
    /// A new schedule is due at once.
    FirstFireAtOnce,
    /// An upsert with the same spec sets a new boundary.
    UpsertResetsBoundary,
    /// An upsert with another spec keeps the boundary.
    UpsertKeepsBoundary,
    /// An upsert keeps a boundary that a clock far ahead has left.
    UpsertKeepsFarBoundary,
    /// A boundary that a clock far ahead has left stays.
    ResetIgnored,
    /// A reset takes boundaries that are near, too.
    ResetTakesAll,
    /// The agenda's now is the begin of its second.
    SubsecForgotten,
    /// An upsert keeps the payload that was there.
    UpsertKeepsPayload,
    /// An upsert keeps the queue that was there.
    UpsertKeepsQueue,
    /// An upsert wakes nobody.
    UpsertWakesNobody,
    /// A deleted schedule stays.
    DeleteIgnored,
    /// A delete says that there was nothing.
    DeleteDenied,
    /// A schedule is not yet due in the second of its boundary.
    AgendaExclusive,
    /// Due schedules are not found.
    AgendaHidesDue,
    /// Nobody is told when the next schedule is due.
    AgendaForgetsNext,
    /// What the jobs of a schedule carry is not stored.
    ScheduleStampsForgotten,
    /// A schedule moves on wherever it was seen.
    AdvanceIgnoresFrom,
    /// A schedule does not move on.
    AdvanceIgnored,
}
