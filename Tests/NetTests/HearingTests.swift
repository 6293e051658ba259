import Diagnostics
import Glibc
import Net
import Synchronization
import System
import TestSupport
import Testing

/// Number that one thread writes and another reads.
private final class Noted: Sendable {
    private let held = Mutex<UInt64>(0)

    var value: UInt64 {
        get { held.withLock { $0 } }
        set { held.withLock { $0 = newValue } }
    }
}

private struct HandClock: TimeSource {
    let now = Noted()

    func monotonicNanoseconds() -> UInt64 { now.value }
    func unixMicroseconds() -> Int64 { Int64(now.value / 1000) }
}

/// Loop with one connection. The test runs its turns.
private final class Desk {
    let clock = HandClock()
    let diary = Diary()
    private let scripted: Scripted
    private let loop: SteppedLoop
    private let peer: Int32
    private let connection: ConnectionID

    init() throws {
        var settings = SocketSettings(host: "", port: 0, loopCount: 1)
        settings.time = clock
        settings.idleLimit = .seconds(5)
        scripted = Scripted(diary)
        scripted.onReceived = { _, _, bytes in bytes.byteCount }
        loop = try SteppedLoop(settings, index: 0, application: scripted, metrics: ProcessMetrics())
        let (peer, own) = try StreamSocket.pair()
        self.peer = peer
        loop.connected(own, from: .anyIPv4(port: 0))
        _ = loop.step()
        connection = try #require(diary.waitForOpened(1)?.first)
    }

    deinit {
        loop.stop()
        StreamSocket.close(peer)
    }

    /// Sends some bytes from the peer.
    func comes(_ count: Int = 1) throws {
        let bytes = Array(repeating: UInt8(ascii: "x"), count: count)
        try #require(write(peer, bytes, count) == count)
    }

    /// Runs a turn at that time in seconds, and returns the time after which the connection's last data was sent.
    func certainlySentAfter(
        turningAt seconds: UInt64, _ act: @escaping @Sendable (SocketLoop, ConnectionID) -> Void = { _, _ in }
    ) -> UInt64 {
        clock.now.value = seconds * 1_000_000_000
        let found = Noted()
        let connection = connection
        scripted.acts.withLock {
            $0.append { loop in
                found.value = loop.certainlySentAfter(connection)
                act(loop, connection)
            }
        }
        _ = loop.step()
        return found.value / 1_000_000_000
    }
}

/// Tests of the time until which a peer was certainly connected.
@Suite(.within(minutes: 2)) struct HearingTests {
    @Test func `what comes was sent after the loop looked last`() throws {
        let desk = try Desk()
        #expect(desk.certainlySentAfter(turningAt: 10) == 0)
        try desk.comes()
        #expect(desk.certainlySentAfter(turningAt: 11) == 10)
        #expect(desk.certainlySentAfter(turningAt: 12) == 10)
        try desk.comes()
        #expect(desk.certainlySentAfter(turningAt: 13) == 12)
    }

    @Test func `what a loop reads late, having stood still, may be from before`() throws {
        let desk = try Desk()
        #expect(desk.certainlySentAfter(turningAt: 10) == 0)
        try desk.comes()
        #expect(desk.certainlySentAfter(turningAt: 500) == 10)
    }

    @Test func `what waited while nothing was read says nothing of when it came`() throws {
        let desk = try Desk()
        try desk.comes()
        #expect(desk.certainlySentAfter(turningAt: 10) { $0.pauseReading($1) } == 0)
        try desk.comes()
        #expect(desk.certainlySentAfter(turningAt: 11) == 0)
        #expect(desk.certainlySentAfter(turningAt: 12) { $0.resumeReading($1) } == 0)
        #expect(desk.certainlySentAfter(turningAt: 13) == 0)
        try desk.comes()
        #expect(desk.certainlySentAfter(turningAt: 14) == 13)
    }

    @Test func `what is more than is read at once may have waited`() throws {
        let desk = try Desk()
        #expect(desk.certainlySentAfter(turningAt: 10) == 0)
        try desk.comes(Limits.socketReadBytes + 1)
        #expect(desk.certainlySentAfter(turningAt: 11) == 10)
        #expect(desk.certainlySentAfter(turningAt: 12) == 10)
        try desk.comes()
        #expect(desk.certainlySentAfter(turningAt: 13) == 12)
    }

    @Test func `that nothing came for long is nothing that came`() throws {
        let desk = try Desk()
        try desk.comes()
        #expect(desk.certainlySentAfter(turningAt: 10) == 0)
        for seconds in UInt64(11)...20 { #expect(desk.certainlySentAfter(turningAt: seconds) == 0) }
        let wasIdle = desk.diary.all.contains { if case .wentIdle = $0 { true } else { false } }
        #expect(wasIdle)
    }
}
