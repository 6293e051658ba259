import Change
import Diagnostics
import Postgres
import Synchronization
import System

/// Replicator that follows one slot until it is stopped. It connects, streams, and connects again after every failure.
///
/// `run` needs its own thread. It returns when the interrupt is signalled.
public final class Replicator<Sink: TransactionSink> {
    private let settings: ReplicationSettings
    private let spoolDirectory: any StorageDirectory
    private let sink: Sink
    private let interrupt: Wake
    private let status: ReplicationStatus
    private var backoff: Backoff
    private var lastTrouble = ""
    private var lastReport: UInt64 = 0
    /// Lag of the log behind the server, kept across connections.
    private let lag: Lag
    /// Position at which the stream last failed because its publication had been dropped and created again; nil if it
    /// did not.
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

    /// Returns the monotonic time, in nanoseconds, at which an earlier process last wrote the log.
    private static func lastSign(of sink: Sink) -> UInt64 {
        let now = Clock.monotonicNanoseconds()
        guard let last = sink.lastTime else { return now }
        let passed = max(0, Clock.unixMicroseconds() - last)
        return now - min(now, UInt64(passed) * 1000)
    }

    public func run() {
        while !interrupt.isRung, !sink.isOver {
            let began = Clock.monotonicNanoseconds()
            do {
                // Transactions that were received must not stay in memory until the database returns. And reconnecting
                // must not wait for a failing disk.
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
                        // If this stream fails for the same reason as the previous one, the failure must be reported
                        // again.
                        lastTrouble = ""
                    },
                    covered: { [status, sink] in
                        status.covers($0)
                        sink.covered($0)
                    })
                try session.run()
            } catch {
                ended(error, after: Clock.monotonicNanoseconds() - began)
            }
            streamingEnded()
        }
    }

    /// Waits until an operator ends the pause, or the slot may be lost. Writes waiting notes to the log during this
    /// time.
    ///
    /// The hub has no stream connection during a pause. A connection that does not read would prevent the server from
    /// shutting down.
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
                Log.shared.error(
                    "ended the pause early: the replication slot is near its limit", [.slot(settings.slot)])
                _ = settings.pause.finish()
            }
            interrupt.sleep(milliseconds: Limits.pauseTick.wholeMilliseconds)
        }
    }

    /// Connects a watch for the slot; returns nil if the database cannot be reached.
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
        if interrupt.isRung || sink.isOver { return }
        streamingEnded()
        let now = Clock.monotonicNanoseconds()
        lag.clock.lost(sink.position, at: now)
        settings.metrics.slotLagSeconds.set(lag.clock.seconds(at: now))
        // If the connection lasted long enough, it was healthy, and the next waits are short again.
        if nanoseconds > Limits.reconnectBackoffMaximum.wholeNanoseconds { backoff.reset() }
        let trouble = overcome(error) ?? StreamFailure.from(error, settings)
        let delay = trouble.reason == .diskStall ? Limits.diskRetryInterval : backoff.next()
        settings.metrics.reconnects[trouble.reason].add()
        report(trouble, (error as? PostgresError).flatMap { settings.reachability.isNews($0, at: now) }, delay)
        status.troubled(trouble)
        // The wait after a failure of the disk does not end early when another thread reaches the database.
        if trouble.reason == .diskStall {
            interrupt.sleep(milliseconds: delay.wholeMilliseconds)
        } else {
            backoff.wait(delay, interrupt)
        }
    }

    /// Logs a failure. The same failure is logged again only after an interval, because the first line has the advice.
    ///
    /// - Parameter isOutage: true for an outage that no thread has reported yet, false for a reported one; nil if the
    ///   database was reached.
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

    /// Handles a publication that was dropped and created again. If the stream fails twice at the same position, the
    /// changes there were written without the publication. Then the hub skips them and records a gap.
    private func overcome(_ error: any Error) -> StreamFailure? {
        guard error is PublicationWasRecreated else { return nil }
        let what = StreamFailure(
            .publicationMissing, "publication \(settings.publication) was dropped and created again",
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
        assert(sink.position == end, "history goes on behind the gap")
        settings.metrics.gaps.add()
        Log.shared.error(
            "changes were lost before they reached the event log: the hub records a gap and begins a new epoch",
            [
                .reason(gap.reason.rawValue), .slot(settings.slot), .fromLSN(gap.from), .toLSN(gap.to),
                .hint(gap.reason.hint),
            ])
    }
}

/// Lag clock that several objects share. Only the replicator's thread changes it.
final class Lag {
    var clock: LagClock

    init(caughtUpAt: UInt64) { clock = LagClock(caughtUpAt: caughtUpAt) }
}

/// State of the replicator, which other threads can read.
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

    /// Position before which all commits that concern the stream are in the log and visible to readers.
    public var covered: LSN { LSN(position.load(ordering: .acquiring)) }

    /// Database that the log follows; nil until the hub has first reached it.
    public var database: FollowedDatabase? { state.withLock { $0.database } }
    public func follows(_ database: FollowedDatabase) { state.withLock { $0.database = database } }

    public func covers(_ end: LSN) { position.store(end.rawValue, ordering: .releasing) }

    public var isStreaming: Bool { state.withLock { $0.isStreaming } }
    public var trouble: StreamFailure? { state.withLock { $0.trouble } }
    /// Number of connections that have begun to stream in this run.
    public var sessions: Int { state.withLock { $0.sessions } }

    public func streamingBegan() {
        state.withLock { state in
            assert(!state.isStreaming, "a stream begins after the end of the one before")
            state.isStreaming = true
            state.sessions += 1
            state.trouble = nil
        }
    }

    public func streamingEnded() {
        state.withLock { $0.isStreaming = false }
    }

    /// Description of a danger of losing changes; nil if there is none.
    public var danger: String? { state.withLock { $0.danger } }
    func endangered(_ danger: String?) { state.withLock { $0.danger = danger } }

    public func troubled(_ trouble: StreamFailure) { state.withLock { $0.trouble = trouble } }
}
