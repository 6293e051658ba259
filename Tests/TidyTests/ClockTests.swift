import TestSupport
import Testing

/// Rule for clocks: code must measure durations on the monotonic clock. The wall clock can be set forward or back at
/// any time, so a deadline on it could pass immediately or never. Only times that people or other programs name use the
/// wall clock.
@Suite(.within(minutes: 5)) struct ClockTests {
    /// Files that may read the wall clock, with the reason.
    private static let allowed: [String: String] = [
        "Sources/base/System/Clock.swift": "declares both clocks",
        "Sources/base/Diagnostics/WallTime.swift": "declares the time of log lines",
        "Sources/base/Diagnostics/Log.swift": "stamps log lines",
        // Times in the log and in files, for people and for later processes.
        "Sources/queries/Catalog/CatalogRecorder.swift": "stamps the catalog's record in the log",
        "Sources/log/EventLog/EventLogOptions.swift": "stamps segments, whose age counts across restarts",
        "Sources/log/Ingest/Cluster/ClusterMember.swift": "since when the node feeds the stream, for operators",
        "Sources/log/Ingest/Cluster/ClusterRepair.swift": "the name of a log that was moved aside",
        "Sources/log/Ingest/LogSink.swift": "stamps entries; age by `RetentionClock`; latency since a commit",
        "Sources/postgres/Replication/TransactionAssembler.swift": "stamps messages that belong to no transaction",
        "Sources/postgres/Replication/ReplicationSession.swift": "the replication protocol's own field",
        "Sources/postgres/Replication/Replicator.swift":
            "how long the process before this one has been gone, for a metric",
        "Sources/hub/Gateway/Resume/LoopCatchUps.swift": "the moment that a message names",
        "Sources/hub/Gateway/Ledger/LoopLedger.swift": "stamps notes and deliveries in the log",
        "Sources/hub/Gateway/Resume/LoopStandings.swift": "stamps a note in the log",
        "Sources/hub/Gateway/Talk/LoopPresence.swift":
            "references hold the time, and only grow; stamps the log",
        "Sources/hub/Gateway/Requests/ChannelCensus.swift": "the age of commits, for people",
        "Sources/evidence/History/Bundle/BundleMaker.swift": "the time of files in a bundle",
        "Sources/hub/Server/ClusterSurvey.swift": "compares the clocks of NATS servers with this machine's",
        "Sources/hub/Projects/OperatorSignal.swift": "the moment that an answer and the log name",
        "Sources/hub/Projects/ProjectDirector.swift": "when a project was made",
        "Sources/hub/Projects/RunningProject.swift": "stamps notes in the log",
        "Sources/hub/Projects/Questions/QuestionDesk.swift": "the age of files that another process left",
        "Sources/hub/Projects/Questions/QuestionRun.swift": "the age of files that another process left",
        // Times that tokens contain.
        "Sources/hub/Delivery/DeliveryAccounts.swift":
            "nothing is delivered after a token's `exp`; latency since a commit",
        "Sources/hub/Pages/ConsoleGate.swift": "ends of sessions, as cookies name them",
        "Sources/hub/Server/Hub.swift": "ends of the console's sessions, across restarts",
        "Sources/hub/Gateway/Requests/ClientPages.swift": "tokens' `exp`",
        "Sources/hub/Gateway/Requests/ClientRequests.swift": "tokens' `exp`",
        "Sources/hub/Gateway/Sessions/ProjectLoop+Channels.swift": "tokens' `exp`",
        "Sources/postgres/Embedded/Database/DatabaseCheck.swift": "compares this machine's clock with the server's",
        // Times of rows, which PostgreSQL wrote.
        "Sources/queries/Messages/ArchiveWorker.swift": "messages' `inserted_at`",
        "Sources/queries/Messages/MessageIndex.swift": "messages' `inserted_at`",
        "Sources/queries/Messages/MessageLog.swift": "messages' `inserted_at`",
        "Sources/queries/Messages/MessageTableReader.swift": "messages' `inserted_at`",
        // The grace period of disconnected clients continues across restarts of the hub. The code reads when the
        // computer was started.
        "Sources/hub/Gateway/Resume/ResumeStore.swift": "when clients left, as it is kept on the disk",
        // Commands about past times.
        "Sources/evidence/Explaining/ExplainedRow.swift": "the moment that somebody asks about",
        "Sources/evidence/Explaining/PastCatalogs.swift": "the moment that somebody asks about",
        "Sources/program/tidewire/Shared/Selection.swift": "`--since 5m` and the like",
        "Sources/hub/Projects/HourOfValues.swift": "stamps samples, for people",
        "Sources/hub/Projects/OperatorAudit.swift": "stamps the audit",
        "Sources/hub/Projects/OperatorKick.swift": "ends of blocks, across restarts",
        "Sources/hub/Projects/Questions/FollowRun.swift": "tokens' `exp`",
        "Sources/program/tidewire/Shared/MaskOptions.swift": "stamps the audit",
        "Sources/program/tidewire/bundle.swift": "when a bundle was made",
        "Sources/program/tidewire/dev.swift": "tokens' `exp`",
        "Sources/program/tidewire/log-accept-loss.swift": "stamps the log",
        "Sources/program/tidewire/log-forget.swift": "stamps the audit",
        "Sources/app/TidewireClient/Writing/OfflineWrites.swift": "when a write was made, as the app sees it",
        "Sources/app/TidewireClient/LiveQuery.swift": "when rows leave, as PostgreSQL wrote their times",
        "Sources/app/TidewireClientTesting/TestClients.swift": "when a write was made, as the app sees it",
    ]

    /// Targets that may read the wall clock: they compare with times of PostgreSQL or of another process, or make
    /// tokens and rows with times.
    private static let allowedRooms: Set = ["Bench", "Rehearsal", "Examples"]

    @Test func `durations are measured on a clock that cannot be set`() {
        let house = TidyTests.house
        var found: Set<String> = []
        for file in house.sources where !Self.allowedRooms.contains(file.room) {
            for line in file.code where line.text.readsWallClock {
                found.insert(file.path)
                #expect(
                    Self.allowed[file.path] != nil,
                    "\(file.path):\(line.number): monotonicNanoseconds(); or say here which moment this names, and for whom"
                )
            }
        }
        for path in Self.allowed.keys.sorted() where !found.contains(path) {
            Issue.record("\(path) does not read the wall clock any more: take it out of the list")
        }
    }
}

extension String {
    fileprivate var readsWallClock: Bool {
        holdsAny(
            "Clock.unixMicroseconds", "time.unixMicroseconds", "unixMicroseconds()", "unixSeconds", "WallTime.now",
            "CLOCK_REALTIME", "Date()", "Date.now", "time(nil)", "gettimeofday")
    }
}
