import Bytes
import Channels
import Delivery
import Diagnostics
import EventLog
import Net
import Positions
import Synchronization
import System

/// Periodic sweep over a loop's channels. It sends the current position to clients that asked for positions and had no
/// change since the last one, so that they can resume within retention. It sets the metric of the slowest reader, and
/// warns when retention is about to delete entries that a channel still needs. It repeats ledger notes that retention
/// is about to delete, and records how far all channels have been served.
final class LoopStandings: LoopPart {
    unowned let home: ProjectLoop
    /// Progress of the current sweep; nil until the first channel needs sweeps.
    private var sweep: StandingSweep?

    init(of home: ProjectLoop) { self.home = home }

    /// Starts the periodic sweeps, when the first channel needs them.
    func watch() {
        guard sweep == nil else { return }
        sweep = StandingSweep()
        lookAtStandings(after: project.settings.positionInterval)
    }

    private func lookAtStandings(after time: Duration) {
        loop.after(nanoseconds: time.wholeNanoseconds, token: TimerToken.standings(home.place).rawValue)
    }

    /// Runs one step of a sweep. Checking all channels in one step would delay other work of the loop.
    func areDue() {
        guard var sweep else { return }
        if sweep.next == 0 { sweep.began = loop.time.unixMicroseconds() }
        let all = home.channels.indices
        let last = min(all.upperBound, sweep.next + Limits.standingsPerStep)
        let restatedBefore = home.ledger.restatedBefore ?? 0
        for place in sweep.next..<max(last, sweep.next) {
            guard let channel = home.channels[place], channel.isOpen else { continue }
            sweep.found(channel.position.needed(home.view(of: channel)))
            sayWhereQuietChannelStands(channel)
            guard channel.ledger.isListed else { continue }
            sweep.sent(home.ledger.sentForLedger(channel) ?? 0)
            // The notes repeated in one sweep are limited: a hundred thousand in one step would be more than the log
            // can take.
            guard home.ledger.mustBeRestated(channel, before: restatedBefore), sweep.mayRestate() else { continue }
            home.ledger.restate(channel)
        }
        sweep.next = last
        guard last >= all.upperBound else {
            self.sweep = sweep
            return lookAtStandings(after: Limits.standingStepInterval)
        }
        ended(sweep)
        self.sweep = StandingSweep()
        lookAtStandings(after: project.settings.positionInterval)
    }

    // MARK: Quiet channels

    /// Sends a client its current position if it asked for positions and had no change since the last one.
    private func sayWhereQuietChannelStands(_ channel: Channel) {
        // Feeds send their positions themselves.
        guard channel.feed == nil, channel.conversation.options.contains(.hearsPosition),
            channel.delivery.follower === home.live, !home.live.holds(channel),
            let position = home.catchUps.position(of: channel)
        else { return }
        // A position in a change counts as a marker.
        let heard = channel.delivery.listener.flatMap { home.live.pipeline.toldAt($0) } ?? 0
        guard heard <= channel.position.markedAt else { return home.take(.marked(heard), channel) }
        if position.offset > channel.position.markedAt { home.catchUps.sayCaughtUp(channel) }
    }

    // MARK: Channels that are behind

    private func ended(_ sweep: StandingSweep) {
        home.ledger.sayWhatIsMissing()
        if let sent = sweep.sent { home.ledger.noteReach(sent, from: sweep.began) }
        project.slowest.set(sweep.needed, of: clients.number)
        guard let end = project.delivery.log.end()?.state.position.offset else { return }
        metrics.slowestReaderOffset.set(min(project.slowest.offset ?? end, end))
        guard let needed = sweep.needed, let oldest = home.catchUps.oldestOffset(),
            Retention.isNear(needed, oldest: oldest, end: end)
        else { return }
        home.warnSometimes(
            """
            a channel that catches up is about to be overtaken by the event log's retention: raise retention_size or \
            retention_age, or it will have to fetch again
            """)
    }
}

/// Progress and results of one sweep over all channels of a loop.
struct StandingSweep {
    /// Unix time in microseconds at which the sweep began.
    var began: Int64 = 0
    /// Place (index) of the next channel to check.
    var next: UInt32 = 0
    /// Lowest, over the checked channels, of the offsets before which a channel was sent everything; nil before the
    /// first one.
    private(set) var sent: UInt64?
    /// Lowest offset that some checked channel still needs from the log; nil if none needs any.
    private(set) var needed: UInt64?

    /// Number of channels whose ledger notes were repeated in this sweep.
    private var restated = 0

    /// Counts a ledger note that is about to be repeated. Returns false if the sweep has reached its limit.
    mutating func mayRestate() -> Bool {
        restated += 1
        return restated <= Limits.restatedPerSweep
    }

    mutating func sent(_ offset: UInt64) { sent = min(sent ?? offset, offset) }

    mutating func found(_ offset: UInt64?) {
        guard let offset else { return }
        needed = min(needed ?? offset, offset)
    }
}

enum Retention {
    /// True if the offset is in the oldest tenth of the log. Retention deletes whole segments, so the offset may be
    /// deleted soon.
    static func isNear(_ offset: UInt64, oldest: UInt64, end: UInt64) -> Bool {
        guard end > oldest, offset < end else { return false }
        return offset < oldest + (end - oldest) / 10
    }
}

/// Lowest offset that any channel of the project still needs from the log, over all loops.
final class SlowestReader: Sendable {
    private let offsets: Mutex<[UInt64?]>

    init(loops: Int) { offsets = Mutex(Array(repeating: nil, count: loops)) }

    func set(_ offset: UInt64?, of loop: Int) { offsets.withLock { $0[loop] = offset } }
    var offset: UInt64? { offsets.withLock { $0.compactMap(\.self).min() } }
}
