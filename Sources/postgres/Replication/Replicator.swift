import Change
import Diagnostics
import Postgres
import Synchronization
import System

/// Follows one slot for as long as it is let: connects, streams, and after every trouble connects again.
///
/// `run` belongs on a thread of its own; it ends when the interrupt rings.
public final class Replicator<Sink: TransactionSink> {
    private let settings: ReplicationSettings
    private let spoolDirectory: any StorageDirectory
    private let sink: Sink
    private let interrupt: Wake
    private let status: ReplicationStatus
    private var backoff: Backoff
    private var lastTrouble = ""
    private var lastReport: UInt64 = 0
    /// How long ago the log had everything, across connections.
    private let lag: Lag
    /// Where the stream stood when it last failed on a publication that exists.
    private var stuckAt: LSN?

    public init(
        settings: ReplicationSettings, spoolDirectory: any StorageDirectory, sink: Sink, interrupt: Wake,
        status: ReplicationStatus
    ) {
        self.settings = settings
        self.spoolDirectory = spoolDirectory
        self.sink = sink
        self.interrupt = interrupt
        self.status = status
        backoff = Backoff(settings.reachability)
        lag = Lag(caughtUpAt: Self.lastSign(of: sink))
    }

    /// When a process before this one wrote the log last, on this one's clock.
    private static func lastSign(of sink: Sink) -> UInt64 {
        let now = Clock.monotonicNanoseconds()
        guard let last = sink.lastTime else { return now }
        let passed = max(0, Clock.unixMicroseconds() - last)
        return now - min(now, UInt64(passed) * 1000)
    }

    public func run() {
        while !interrupt.isRung {
            let began = Clock.monotonicNanoseconds()
            do {
                // What has come whole must not wait for a database that may never return; and the database must not wait
                // for a disk that refuses.
                try sink.flush()
                if settings.pause.isOn {
                    try rest()
                    continue
                }
                let session = ReplicationSession(
                    settings: settings, spoolDirectory: spoolDirectory, sink: sink, interrupt: interrupt,
                    status: status, lag: lag,
                    streaming: { [status, self] in
                        status.streamingBegan()
                        settings.metrics.replicationConnected.set(Int64(1))
                        backoff.reached()
                        // Whatever ends this stream is news, also if it is what ended the one before.
                        lastTrouble = ""
                    }, covered: { [status] in status.covers($0) })
                try session.run()
            } catch {
                ended(error, after: Clock.monotonicNanoseconds() - began)
            }
            streamingEnded()
        }
    }

    /// As long as an operator wants it, or until the slot is in danger. What waits for the log goes there meanwhile.
    ///
    /// Without a connection for the stream: the server could not be stopped while somebody has one and does not read.
    private func rest() throws {
        status.troubled(.pause)
        settings.metrics.reconnects[.paused].add()
        let began = Clock.monotonicNanoseconds()
        lag.clock.lost(sink.position, at: began)
        var watch: SlotWatch?
        var triedAt: UInt64 = 0
        while settings.pause.isOn, !interrupt.isRung {
            try sink.flush()
            let now = Clock.monotonicNanoseconds()
            if watch?.isAlive != true, now - triedAt > Limits.slotWatchInterval.wholeNanoseconds {
                triedAt = now
                watch = slotWatch()
            }
            watch?.look(sink.position, &lag.clock)
            settings.metrics.slotLagSeconds.set(lag.clock.seconds(at: now))
            if watch?.isAtRisk(afterSeconds: Int64((now - began) / 1_000_000_000)) == true {
                Log.shared.error("the pause is over before its time: the slot is in danger", [.slot(settings.slot)])
                _ = settings.pause.finish()
            }
            interrupt.sleep(milliseconds: Limits.pauseTick.wholeMilliseconds)
        }
    }

    /// Nil where the database cannot be reached now.
    private func slotWatch() -> SlotWatch? {
        let catalog = try? Connection(
            settings.target, applicationName: "tidewire catalog",
            timeoutSeconds: Limits.connectTimeout.wholeSeconds, interrupt: interrupt)
        return catalog.map {
            SlotWatch(slot: settings.slot, catalog: $0, metrics: settings.metrics, status: status)
        }
    }

    private func streamingEnded() {
        status.streamingEnded()
        settings.metrics.replicationConnected.set(Int64(0))
    }

    private func ended(_ error: any Error, after nanoseconds: UInt64) {
        if interrupt.isRung { return }
        streamingEnded()
        let now = Clock.monotonicNanoseconds()
        lag.clock.lost(sink.position, at: now)
        settings.metrics.slotLagSeconds.set(lag.clock.seconds(at: now))
        // A connection that held for a while was healthy: begin with short waits again.
        if nanoseconds > Limits.reconnectBackoffMaximum.wholeNanoseconds { backoff.reset() }
        let trouble = overcome(error) ?? StreamFailure.from(error, settings)
        let delay = trouble.reason == .diskStall ? Limits.diskRetryInterval : backoff.next()
        settings.metrics.reconnects[trouble.reason].add()
        report(trouble, (error as? PostgresError).flatMap { settings.reachability.isNews($0, at: now) }, delay)
        status.troubled(trouble)
        // What the disk refuses does not depend on who reaches the database.
        if trouble.reason == .diskStall {
            interrupt.sleep(milliseconds: delay.wholeMilliseconds)
        } else {
            backoff.wait(delay, interrupt)
        }
    }

    /// The same trouble again is worth a line now and then: the first one said what to do.
    ///
    /// - Parameter isOutage: nobody can reach the database, which is news or was said, by whomever; nil: it is reached.
    private func report(_ trouble: StreamFailure, _ isOutage: Bool?, _ delay: Duration) {
        var fields: [LogField] {
            var fields: [LogField] = [.reason(trouble.reason.rawValue), .error(trouble.message)]
            if let sqlState = trouble.sqlState { fields.append(.sqlstate(sqlState)) }
            if let hint = trouble.hint { fields.append(.hint(hint)) }
            fields.append(.delay(delay))
            return fields
        }
        let now = Clock.monotonicNanoseconds()
        let isSaid =
            trouble.message == lastTrouble && now - lastReport < Limits.troubleReminderInterval.wholeNanoseconds
        guard isOutage ?? !isSaid else {
            return Log.shared.debug("still not streaming; trying again", fields)
        }
        Log.shared.warning("not streaming; trying again", fields)
        lastTrouble = trouble.message
        lastReport = now
    }

    /// When the publication exists and the stream still fails at the same place, what lies there was written while
    /// there was no publication: it is passed over, and said.
    private func overcome(_ error: any Error) -> StreamFailure? {
        guard error is PublicationWasRecreated else { return nil }
        let what = StreamFailure(
            .publicationMissing, "publication \(settings.publication) was dropped and made again",
            hint: "changes made in between cannot be decoded")
        guard stuckAt == sink.position else {
            stuckAt = sink.position
            return what
        }
        stuckAt = nil
        do {
            try passOver()
            return what
        } catch {
            return StreamFailure.from(error, settings)
        }
    }

    private func passOver() throws {
        let catalog = try Connection(settings.target, applicationName: "tidewire catalog", interrupt: interrupt)
        let end = try SlotKeeper(settings: settings, catalog: catalog, interrupt: interrupt).advanceToEnd()
        let gap = Gap(reason: .publicationRecreated, from: sink.position, to: end)
        try sink.recordGap(gap, systemIdentifier: sink.systemIdentifier)
        settings.metrics.gaps.add()
        Log.shared.error(
            "changes were lost before they reached the log: a gap is recorded and a new epoch begins",
            [
                .reason(gap.reason.rawValue), .slot(settings.slot), .fromLSN(gap.from), .toLSN(gap.to),
                .hint(gap.reason.hint),
            ])
    }
}

/// The replicator's thread alone changes it.
final class Lag {
    var clock: LagClock

    init(caughtUpAt: UInt64) { clock = LagClock(caughtUpAt: caughtUpAt) }
}

/// What the replicator is doing, for those who ask from other threads.
public final class ReplicationStatus: Sendable {
    private struct State {
        var isStreaming = false
        var sessions = 0
        var trouble: StreamFailure?
        var danger: String?
        var database: FollowedDatabase?
    }

    private let state = Mutex(State())
    private let position = Atomic<UInt64>(0)

    public init() {}

    /// Whatever was committed before this position, and concerns the stream, is in the log, where readers find it.
    public var covered: LSN { LSN(position.load(ordering: .acquiring)) }

    /// Of which database the log is; nil until it was reached.
    public var database: FollowedDatabase? { state.withLock { $0.database } }
    func follows(_ database: FollowedDatabase) { state.withLock { $0.database = database } }

    func covers(_ end: LSN) { position.store(end.rawValue, ordering: .releasing) }

    public var isStreaming: Bool { state.withLock { $0.isStreaming } }
    public var trouble: StreamFailure? { state.withLock { $0.trouble } }
    /// How many connections have come as far as streaming.
    public var sessions: Int { state.withLock { $0.sessions } }

    func streamingBegan() {
        state.withLock {
            $0.isStreaming = true
            $0.sessions += 1
            $0.trouble = nil
        }
    }

    func streamingEnded() {
        state.withLock { $0.isStreaming = false }
    }

    /// What may become a gap, in words; nil where nothing is near.
    public var danger: String? { state.withLock { $0.danger } }
    func endangered(_ danger: String?) { state.withLock { $0.danger = danger } }

    public func troubled(_ trouble: StreamFailure) { state.withLock { $0.trouble = trouble } }
}
