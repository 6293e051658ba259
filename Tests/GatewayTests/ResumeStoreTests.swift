import Channels
import Diagnostics
import EventLog
import Settings
import System
import TestSupport
import Testing

@testable import Gateway

/// Tests of the store that keeps clients' positions in a directory.
@Suite(.within(minutes: 1)) struct ResumeStoreTests {
    private let directory = MemoryDirectory()
    private let key = ResumeKey(high: 1, low: 2)
    private let taker = ResumeRegistry.Taker(address: 1, socket: 1)

    private func begin(_ time: any TimeSource, grace: Duration = .seconds(120)) throws -> ResumeStore {
        try ResumeStore(loops: 1, scope: .sessions, grace: grace, in: directory, time: time)
    }

    /// True if the store recognises a returning client by the number of its first message.
    private func comesBack(to store: ResumeStore) -> Bool {
        if case .goesOn = store.arrival(key, of: taker, firstRef: 9, on: 0, now: 0) { true } else { false }
    }

    private func leave(_ store: ResumeStore, at time: SteppedTime) throws {
        let mark = EventLogPosition(epoch: 1, offset: 7)
        let place = try #require(
            store.arrive(
                key, of: taker, on: 0, lastRef: 3, at: mark, owesLoss: false, now: time.monotonicNanoseconds()))
        store.depart(
            place, at: mark, lastRef: 3, owesLoss: false, heard: 0, now: time.monotonicNanoseconds())
    }

    @Test func `a client that a new directory does not know is not taken for one that begins`() throws {
        let store = try begin(SteppedTime())
        #expect(store.arrival(key, of: taker, firstRef: 7, on: 0, now: 0) == .unknown)
        #expect(store.arrival(key, of: taker, firstRef: 1, on: 0, now: 0) == .begins)
        #expect(store.arrival(nil, of: taker, firstRef: 7, on: 0, now: 0) == .unknown)
        #expect(store.arrival(nil, of: taker, firstRef: 1, on: 0, now: 0) == .begins)
    }

    @Test(arguments: [86_400, -86_400]) func `a step of the wall clock takes nobody's grace period`(
        seconds: Int64
    ) throws {
        let time = SteppedTime()
        let store = try begin(time)
        try leave(store, at: time)
        time.unix += seconds
        time.monotonic += 5
        _ = store.update(
            EventLogPosition(epoch: 1, offset: 9), of: 0, [], now: time.monotonicNanoseconds(), ProjectMetrics())
        #expect(comesBack(to: store))
    }

    @Test func `the grace period ends, and the client is unknown then`() throws {
        let time = SteppedTime()
        let store = try begin(time)
        try leave(store, at: time)
        time.monotonic += 121
        _ = store.update(
            EventLogPosition(epoch: 1, offset: 9), of: 0, [], now: time.monotonicNanoseconds(), ProjectMetrics())
        #expect(!comesBack(to: store))
    }

    @Test(arguments: [86_400, -86_400])
    func `a step of the wall clock while the hub is away takes nobody's grace period`(seconds: Int64) throws {
        let time = SteppedTime(boot: 7)
        let former = try begin(time)
        try leave(former, at: time)
        former.flush()
        time.unix += seconds
        time.monotonic += 5
        #expect(comesBack(to: try begin(time)))
    }

    @Test func `the grace period ends also while the hub is away and the wall clock goes back`() throws {
        let time = SteppedTime(boot: 7)
        let former = try begin(time)
        try leave(former, at: time)
        former.flush()
        time.unix -= 86_400
        time.monotonic += 121
        #expect(!comesBack(to: try begin(time)))
    }

    @Test func `a restart knows who was there, on a monotonic clock that begins anew`() throws {
        let time = SteppedTime()
        let former = try begin(time)
        try leave(former, at: time)
        former.flush()
        let rebooted = SteppedTime()
        rebooted.unix = time.unix + 30
        rebooted.monotonic = 1
        #expect(comesBack(to: try begin(rebooted)))
    }
}

/// Monotonic clock and wall clock that a test moves independently.
final class SteppedTime: TimeSource, @unchecked Sendable {
    var unix: Int64 = 1_700_000_000
    var monotonic: UInt64 = 1000
    let boot: UInt64

    init(boot: UInt64 = 0) { self.boot = boot }

    func monotonicNanoseconds() -> UInt64 { monotonic * 1_000_000_000 }
    func unixMicroseconds() -> Int64 { unix * 1_000_000 }
}
