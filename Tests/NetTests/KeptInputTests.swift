import Diagnostics
import TestSupport
import Testing

@testable import Net

/// Tests of the input that a connection keeps, and of the budgets that limit it.
@Suite(.within(minutes: 1)) struct KeptInputTests {
    /// Keeps the bytes that the application has seen and not consumed. Returns all kept bytes.
    private func keep(_ bytes: [UInt8], from consumed: Int, in input: inout KeptInput, now: UInt64 = 1) -> [UInt8] {
        var seen = bytes
        // SAFETY: the array's bytes stay in place during the call.
        unsafe seen.withUnsafeMutableBytes { area in
            if let start = area.baseAddress { unsafe input.keep(start, bytes.count, from: consumed, now: now) }
        }
        return content(of: input)
    }

    private func content(of input: KeptInput) -> [UInt8] {
        guard let start = unsafe input.start else { return [] }
        // SAFETY: `count` bytes from the start are initialised.
        return unsafe Array(UnsafeRawBufferPointer(start: start, count: Int(input.count)))
    }

    @Test func `keeps what was not consumed, and nothing else`() {
        var input = KeptInput()
        #expect(keep(pattern(100), from: 30, in: &input) == Array(pattern(100)[30...]))
        #expect(keep(pattern(5000), from: 0, in: &input) == pattern(5000))
        #expect(keep(pattern(10), from: 10, in: &input) == [])
        #expect(input.chargedBytes == 0)
    }

    @Test func `large input grows in place and gives memory back when it was consumed`() {
        var input = KeptInput()
        #expect(keep(pattern(200_000), from: 0, in: &input).count == 200_000)
        #expect(input.isLarge)
        input.growForMore()
        let charged = input.chargedBytes
        guard let start = unsafe input.start, let room = unsafe input.room else {
            Issue.record("input that is kept has memory")
            return
        }
        #expect(room.count >= 200_000)
        // SAFETY: one byte of the room is written, and the input keeps its last two bytes.
        unsafe room[0] = 77
        input.append(1)
        unsafe input.keep(start, 200_001, from: 199_999, now: 1)
        #expect(content(of: input) == [pattern(200_000)[199_999], 77])
        #expect(charged >= 200_001 && input.chargedBytes == 0)
        input.forget(now: 1)
    }

    @Test func `small input costs nothing`() {
        var input = KeptInput()
        input.hold(16 << 10, restarting: false, now: 1)
        #expect(input.chargedBytes == 0)
        input.hold((16 << 10) + 1, restarting: false, now: 1)
        #expect(input.chargedBytes == (16 << 10) + 1)
    }

    @Test func `the time of a message begins with it and ends with it`() {
        var input = KeptInput()
        #expect(input.dueTime(limit: 10) == .max)
        _ = keep(pattern(50), from: 0, in: &input, now: 100)
        #expect(input.dueTime(limit: 10) == 110)
        // More of the same message.
        _ = keep(pattern(60), from: 0, in: &input, now: 105)
        #expect(input.dueTime(limit: 10) == 110)
        // So many bytes are added that the input needs new memory. A client that sends slowly must gain no time by
        // that.
        _ = keep(pattern(200), from: 0, in: &input, now: 107)
        #expect(input.dueTime(limit: 10) == 110)
        // One message is complete, and another has begun.
        _ = keep(pattern(60), from: 20, in: &input, now: 108)
        #expect(input.dueTime(limit: 10) == 118)
        _ = keep(pattern(40), from: 40, in: &input, now: 109)
        #expect(input.dueTime(limit: 10) == .max)
    }

    @Test func `an earlier part that the application holds keeps its time`() {
        var input = KeptInput()
        input.hold(10, restarting: false, now: 100)
        _ = keep(pattern(50), from: 20, in: &input, now: 105)
        #expect(input.dueTime(limit: 10) == 110)
        input.hold(10, restarting: true, now: 107)
        #expect(input.dueTime(limit: 10) == 117)
        input.hold(0, restarting: false, now: 108)
        _ = keep(pattern(50), from: 50, in: &input, now: 108)
        #expect(input.dueTime(limit: 10) == .max)
    }

    @Test func `the application waits for bytes once`() {
        var input = KeptInput()
        input.await(100)
        #expect(input.endsWait(with: 99) == false)
        #expect(input.endsWait(with: 100) == true)
        #expect(input.endsWait(with: 1) == true)
    }

    // MARK: Budgets

    private func connection(holding bytes: Int) -> Connection {
        var connection = Connection(descriptor: -1, generation: 1, stage: .open, now: 0)
        connection.input.hold(bytes, restarting: false, now: 1)
        return connection
    }

    @Test func `another budget takes over what a connection holds`() {
        let (common, own) = (InputBudget(1 << 30), InputBudget(1 << 20))
        var accounts = InputAccounts(common: common, ProcessMetrics())
        var holder = connection(holding: 600_000)
        accounts.charge(holder.account, from: 0, to: holder.input.chargedBytes)
        #expect(common.usedBytes == 600_000)
        accounts.bill(&holder, to: own)
        #expect(common.usedBytes == 0 && own.usedBytes == 600_000)
        var other = connection(holding: 500_000)
        accounts.bill(&other, to: own)
        #expect(other.account == holder.account)
        #expect(accounts.haveNoRoom(for: other))
        #expect(!accounts.haveNoRoom(for: connection(holding: 500_000)))
        #expect(!accounts.haveNoRoom(for: connection(holding: 100)))
    }
}
