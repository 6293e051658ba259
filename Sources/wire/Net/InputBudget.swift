import Diagnostics
import Synchronization

/// Limit of the memory for incomplete messages and requests of all clients: bytes that are kept until the rest arrives.
///
/// All loops share one budget. A budget for some of the clients also counts against a larger one. So these clients
/// cannot use up the memory of the others.
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

    /// True if a connection that holds `bytes` must be closed. A connection that holds little is closed only at twice
    /// the limit, so that a few large messages do not harm many clients with small ones.
    func isExceeded(byHolderOf bytes: Int) -> Bool {
        let allowed = bytes <= Self.little ? 2 * limit : limit
        return used.load(ordering: .relaxed) > allowed || whole?.isExceeded(byHolderOf: bytes) ?? false
    }

    static let little = 256 << 10
}

// MARK: Memory that connections hold

extension SocketLoop {
    /// Bytes of input that are not counted, because they fit at the beginning of the shared buffer.
    private static let uncounted = 16 << 10

    /// Charges the connection's incomplete input to `budget`. Before this call the common budget of all connections
    /// pays.
    public func bill(_ connection: ConnectionID, to budget: InputBudget) {
        guard let seat = table.seat(of: connection) else { return }
        let held = heldInput(seat)
        count(seat, from: held, to: 0)
        table[seat].account = account(of: budget)
        count(seat, from: 0, to: held)
    }

    private func account(of budget: InputBudget) -> UInt16 {
        if let known = accounts.firstIndex(where: { $0 === budget }) { return UInt16(known) }
        // The index is used up after that many budgets, so the common budget pays.
        guard accounts.count < Int(UInt16.max) else { return 0 }
        accounts.append(budget)
        return UInt16(accounts.count - 1)
    }

    /// Records that the application holds `bytes` bytes of an incomplete message. With `restarting` the message is
    /// another one than before.
    public func hold(_ bytes: Int, for connection: ConnectionID, restarting: Bool) {
        guard let seat = table.seat(of: connection) else { return }
        let before = heldInput(seat)
        table[seat].held = UInt32(clamping: bytes)
        if restarting { table[seat].unfinishedSince = 0 }
        noteHeld(seat, before: before)
    }

    /// Records that the application holds nothing more, because the connection has ended.
    func hold(nothingOf seat: Int) {
        let before = heldInput(seat)
        table[seat].held = 0
        noteHeld(seat, before: before)
    }

    func heldInput(_ seat: Int) -> Int {
        let held = Int(table[seat].inputCapacity) + Int(table[seat].held)
        return held > Self.uncounted ? held : 0
    }

    /// Updates the accounts after a change of the bytes that a connection holds.
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

    /// Closes connections whose input exceeds the budget. The loop calls it outside of the application's calls.
    func sendOverfullAway() {
        while let number = sendAway.popLast() {
            let seat = Int(number)
            // The message may be complete by now, or other connections may have ended.
            guard table[seat].stage == .open, hasNoRoom(seat) else { continue }
            metrics.unfinishedInputRefused[.noRoom].add()
            application.hasNoRoom(table.id(of: seat))
            if table[seat].stage == .open { end(seat, .inputTooLong, byReset: true) }
        }
    }

    /// Returns the time at which a connection's incomplete message must be complete; `.max` if there is none.
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
