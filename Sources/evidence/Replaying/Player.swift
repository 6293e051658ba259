import Calling
import Change
import History
import System

/// Replay of a window of the log: sends its transactions to a target, each at its time.
///
/// The player holds one change at a time. The clock, the waiting and the user's answers come from `Surroundings`.
public struct Player: ~Copyable {
    public struct Settings: Sendable {
        public var speed = Pacer.Speed.original
        /// True to ask before each transaction.
        public var steps = false
        /// Conditions on rows: the player asks before each transaction that has such a row.
        public var pause: [RowCondition] = []
        public var skipsConflicts = false

        public init() {}
    }

    public enum Answer: Sendable {
        case next
        /// Continue, and stop asking at each step.
        case goOn
        case stop
    }

    /// Functions through which the player uses the outside world.
    public struct Surroundings {
        public var time: any TimeSource = KernelTime()
        public var rest: (UInt64) -> Void = { BackgroundThread.rest(nanoseconds: $0) }
        public var isInterrupted: () -> Bool = { false }
        /// Asks before the transaction that begins at the mark. The flag tells if the reason is a step.
        public var ask: (ReplayMark, _ isStep: Bool) -> Answer = { _, _ in .next }
        public var note: (ReplayReport) -> Void = { _ in }

        public init() {}
    }

    private let request: ReplayRequest
    private let settings: Settings
    private let surroundings: Surroundings
    private let target: any ReplayTarget
    private var reader: HistoryReader
    private var pauses: PauseFinder
    private var pacer: Pacer
    private var steps: Bool
    public private(set) var report = ReplayReport()

    private enum Stage {
        case between
        case playing(ReplayMark, changes: UInt64)
        /// Skips the rest of a transaction that was given up.
        case skipping(TransactionInfo)
    }
    private var stage = Stage.between

    /// - Parameter plan: plan of the same request.
    public init(
        _ request: ReplayRequest, _ plan: ReplayPlan, of log: HistoryLog, to target: any ReplayTarget,
        _ settings: Settings, _ surroundings: Surroundings
    ) throws {
        let reader = try HistoryReader(log, plan.query)
        let pauses = try PauseFinder(settings.pause, plan.query, log)
        self.request = request
        self.settings = settings
        self.surroundings = surroundings
        self.target = target
        self.reader = reader
        self.pauses = pauses
        pacer = Pacer(settings.speed)
        steps = settings.steps
    }

    /// Plays until the window's end, or until something stops the replay. The report tells the reason and the place.
    public mutating func play() throws {
        do {
            while let item = try reader.next() {
                guard case .change(let change) = item, let relation = change.relation,
                    change.forgotten == nil, !request.leavesOut(relation.relation)
                else { continue }
                guard try play(change) else { return }
            }
            try finish()
        } catch  where error is ReplayInterruption || error is HubInterruption {
            stop(.interrupted)
        } catch {
            target.rollBack()
            throw error
        }
    }

    /// Plays a change; returns false if the replay stops.
    private mutating func play(_ change: RecordedChange) throws -> Bool {
        switch stage {
        case .skipping(let info) where info.isSame(as: change.transaction): return true
        case .playing(let mark, _) where mark.transaction.isSame(as: change.transaction): break
        default:
            guard try finish(), try begin(change) else { return false }
        }
        guard case .playing(let mark, let changes) = stage else { return true }
        if surroundings.isInterrupted() { throw ReplayInterruption() }
        stage = .playing(mark, changes: changes + 1)
        return try attempt { target in try target.take(change) }
    }

    // MARK: Transactions

    private mutating func begin(_ change: RecordedChange) throws -> Bool {
        let mark = ReplayMark(change, tag: request.tag)
        report.next = change.offset
        guard try waitForTurn(of: mark) else {
            stop(.stopped)
            return false
        }
        stage = .playing(mark, changes: 0)
        return try attempt { target in try target.begin(mark) }
    }

    @discardableResult
    private mutating func finish() throws -> Bool {
        guard case .playing(_, let changes) = stage else {
            stage = .between
            return true
        }
        guard try attempt({ target in try target.commit() }) else { return false }
        guard case .playing = stage else { return true }
        stage = .between
        report.transactions += 1
        report.changes += changes
        report.next = nil
        surroundings.note(report)
        return true
    }

    /// Runs `body`; returns false if a conflict ends the replay.
    private mutating func attempt(_ body: (any ReplayTarget) throws -> Void) throws -> Bool {
        do {
            try body(target)
            return true
        } catch let conflict as ReplayConflict {
            target.rollBack()
            report.add(conflict)
            guard settings.skipsConflicts, case .playing(let mark, _) = stage else {
                stop(.conflict)
                return false
            }
            stage = .skipping(mark.transaction)
            report.skipped += 1
            return true
        }
    }

    private mutating func stop(_ why: ReplayReport.End) {
        target.rollBack()
        stage = .between
        report.end = why
    }

    // MARK: Turns

    private mutating func waitForTurn(of mark: ReplayMark) throws -> Bool {
        let isPause = try pauses.isPause(at: mark)
        if steps || isPause {
            let before = surroundings.time.monotonicNanoseconds()
            switch surroundings.ask(mark, !isPause) {
            case .next: break
            case .goOn: steps = false
            case .stop: return false
            }
            pacer.heldUp(for: surroundings.time.monotonicNanoseconds() - before)
        }
        // While stepping, the user decides when each transaction comes.
        if steps { return true }
        while true {
            if surroundings.isInterrupted() { throw ReplayInterruption() }
            let now = surroundings.time.monotonicNanoseconds()
            let left = pacer.wait(for: mark.transaction.commitTime, now: now)
            if left == 0 { return true }
            surroundings.note(report)
            surroundings.rest(min(left, Self.longestRest))
        }
    }

    /// Longest rest before the player checks for an interruption again.
    private static let longestRest: UInt64 = 100_000_000
}

/// Reader that looks ahead for the next transaction to pause before.
struct PauseFinder: ~Copyable {
    private var reader: HistoryReader
    private var next: RecordedChange?
    private var isAtEnd: Bool

    /// Prepares the search. Without conditions there are no pauses.
    init(_ conditions: [RowCondition], _ query: HistoryQuery, _ log: HistoryLog) throws {
        var query = query
        query.conditions += conditions
        isAtEnd = conditions.isEmpty
        reader = try HistoryReader(log, query)
    }

    mutating func isPause(at mark: ReplayMark) throws -> Bool {
        while !isAtEnd, (next?.offset ?? 0) < mark.offset || next == nil {
            guard let item = try reader.next() else {
                isAtEnd = true
                next = nil
                break
            }
            if case .change(let change) = item { next = change }
        }
        return next?.transaction.isSame(as: mark.transaction) ?? false
    }
}
