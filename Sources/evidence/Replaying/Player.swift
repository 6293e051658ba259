import Calling
import Change
import History
import System

/// Player of a replay: reads a window of the log and sends its transactions to a target, each when it is due.
///
/// The player holds only one change in memory. It gets the clock, the waiting and the user's answers from
/// `Surroundings`.
public struct Player: ~Copyable {
    public struct Settings: Sendable {
        public var speed = Pacer.Speed.original
        /// True if the player asks the user before each transaction.
        public var steps = false
        /// Conditions on rows. The player asks the user before each transaction that has a row for which one of them is
        /// true.
        public var pause: [RowCondition] = []
        public var skipsConflicts = false

        public init() {}
    }

    public enum Answer: Sendable {
        case next
        /// Play this transaction, and do not ask before every transaction any more. The player still asks if a
        /// condition of `pause` is met.
        case goOn
        case stop
    }

    /// Functions with which the player uses the clock, waits, and asks the user.
    public struct Surroundings {
        public var time: any TimeSource = KernelTime()
        public var rest: (UInt64) -> Void = { BackgroundThread.rest(nanoseconds: $0) }
        public var isInterrupted: () -> Bool = { false }
        /// Asks the user whether to play the transaction with this mark. `isStep` is false if the transaction meets a
        /// condition of `pause`. It is true if the player asks only because it asks before every transaction (`steps`).
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
        /// The player skips the rest of a transaction that had a conflict.
        case skipping(TransactionInfo)
    }
    private var stage = Stage.between

    /// Makes a player.
    ///
    /// - Parameter plan: plan that was made from the same request.
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

    /// Plays until the end of the window, or until something stops the replay. `report` states what stopped it, and
    /// where.
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

    /// Plays a change. Returns false if the replay has stopped.
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

    /// Begins the transaction of a change, at the time when it is due. Returns false if the user or a conflict stops
    /// the replay.
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

    /// Commits the transaction that is being played, if there is one. Returns false if a conflict stops the replay.
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

    /// Runs `body`, and rolls the transaction back if there is a conflict. Returns false if the conflict stops the
    /// replay.
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

    /// Waits until the transaction is due, and asks the user if necessary. Returns false if the user stops the replay.
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
        // The user decides when each transaction is played.
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

    /// Nanoseconds after which a waiting player checks again whether the user has interrupted it.
    private static let longestRest: UInt64 = 100_000_000
}

/// Search for the next transaction with a row that meets a condition of `Player.Settings.pause`. It reads the log ahead
/// of the player.
struct PauseFinder: ~Copyable {
    private var reader: HistoryReader
    private var next: RecordedChange?
    private var isAtEnd: Bool

    /// Starts the search. Without conditions it finds nothing.
    init(_ conditions: [RowCondition], _ query: HistoryQuery, _ log: HistoryLog) throws {
        var query = query
        query.conditions += conditions
        isAtEnd = conditions.isEmpty
        reader = try HistoryReader(log, query)
    }

    /// True if the transaction with this mark has a row that meets a condition. The marks must be given in the order of
    /// the log.
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
