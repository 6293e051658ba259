import Diagnostics
import Synchronization

/// What unfinished messages and requests may take together: the bytes that came of them and are kept until the rest comes.
///
/// Shared by all loops. One that belongs to a part of the clients has its share of a larger one, so that a part cannot use up
/// what the others need.
public final class InputBudget: Sendable {
    private let limit: Int
    private let whole: InputBudget?
    private let used = Atomic<Int>(0)

    public init(_ limit: Int, of whole: InputBudget? = nil) {
        self.limit = limit
        self.whole = whole
    }

    public var usedBytes: Int { used.load(ordering: .relaxed) }

    func add(_ bytes: Int) {
        used.add(bytes, ordering: .relaxed)
        whole?.add(bytes)
    }

    /// Whether one that holds so much has to go. Who holds little may go beyond the limit once again as far: the many who
    /// send small messages are not to pay for the few who begin large ones.
    func isExceeded(byHolderOf bytes: Int) -> Bool {
        let allowed = bytes <= Self.little ? 2 * limit : limit
        return used.load(ordering: .relaxed) > allowed || whole?.isExceeded(byHolderOf: bytes) ?? false
    }

    static let little = 256 << 10
}

// MARK: What connections hold

extension SocketLoop {
    /// Input that fits into the shared buffer's beginning is not counted.
    private static let uncounted = 16 << 10

    /// Who pays for what the connection holds: the first that was said is everybody's.
    public func bill(_ connection: ConnectionID, to budget: InputBudget) {
        guard let seat = table.seat(of: connection) else { return }
        let held = heldInput(seat)
        count(seat, from: held, to: 0)
        table[seat].account = account(of: budget)
        count(seat, from: 0, to: held)
    }

    private func account(of budget: InputBudget) -> UInt16 {
        if let known = accounts.firstIndex(where: { $0 === budget }) { return UInt16(known) }
        // After so many that came and went the whole pays.
        guard accounts.count < Int(UInt16.max) else { return 0 }
        accounts.append(budget)
        return UInt16(accounts.count - 1)
    }

    /// The application keeps so many bytes of a message that is not whole. With `restarting` it is another message than it was
    /// before.
    public func hold(_ bytes: Int, for connection: ConnectionID, restarting: Bool) {
        guard let seat = table.seat(of: connection) else { return }
        let before = heldInput(seat)
        table[seat].held = UInt32(clamping: bytes)
        if restarting { table[seat].unfinishedSince = 0 }
        noteHeld(seat, before: before)
    }

    /// The connection has ended.
    func hold(nothingOf seat: Int) {
        let before = heldInput(seat)
        table[seat].held = 0
        noteHeld(seat, before: before)
    }

    func heldInput(_ seat: Int) -> Int {
        let held = Int(table[seat].inputCapacity) + Int(table[seat].held)
        return held > Self.uncounted ? held : 0
    }

    /// What a connection holds has changed.
    func noteHeld(_ seat: Int, before: Int) {
        let held = heldInput(seat)
        count(seat, from: before, to: held)
        if table[seat].inputCount == 0, table[seat].held == 0 {
            table[seat].unfinishedSince = 0
        } else if table[seat].unfinishedSince == 0 {
            table[seat].unfinishedSince = now
            needSweep(at: now + settings.unfinishedLimit.nanoseconds)
        }
        guard held > before, table[seat].stage == .open else { return }
        if hasNoRoom(seat) { sendAway.append(UInt32(seat)) }
    }

    private func hasNoRoom(_ seat: Int) -> Bool {
        let held = heldInput(seat)
        return held > 0 && accounts[Int(table[seat].account)].isExceeded(byHolderOf: held)
    }

    private func count(_ seat: Int, from before: Int, to after: Int) {
        guard before != after else { return }
        accounts[Int(table[seat].account)].add(after - before)
        metrics.unfinishedInputBytes.add(Int64(after - before))
    }

    /// Those who hold what there is no room for; told between calls of the application's.
    func sendOverfullAway() {
        while let number = sendAway.popLast() {
            let seat = Int(number)
            // It may have finished meanwhile, or others may have gone.
            guard table[seat].stage == .open, hasNoRoom(seat) else { continue }
            metrics.unfinishedInputRefused[.noRoom].add()
            application.hasNoRoom(table.id(of: seat))
            if table[seat].stage == .open { end(seat, .inputTooLong, byReset: true) }
        }
    }

    /// When the message that a connection began has to be whole; `.max` where there is none.
    func unfinishedDue(_ seat: Int) -> UInt64 {
        let since = table[seat].unfinishedSince
        guard since != 0, table[seat].stage == .open else { return .max }
        return since + settings.unfinishedLimit.nanoseconds
    }

    func unfinishedIsDue(_ seat: Int) {
        metrics.unfinishedInputRefused[.tooSlow].add()
        application.tookTooLong(table.id(of: seat))
        if table[seat].stage == .open { end(seat, .inputTooLong, byReset: true) }
    }
}
