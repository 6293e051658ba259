import Bytes
import Diagnostics
import Glibc
import Net
import Synchronization
import System
import TestSupport
import Testing

@Suite(.within(minutes: 10)) struct EndingTests {
    @Test(arguments: backends)
    func `what is queued goes out before a connection is closed`(backend: SocketSettings.Backend) throws {
        let stage = try Stage(
            { $0.backend = backend },
            script: { scripted in
                scripted.onReceived = { loop, id, bytes in
                    let answer = pattern(400_000)
                    loop.send(answer.span.bytes, to: id)
                    loop.close(id, afterFlushing: .seconds(20))
                    let late = Array("late".utf8)
                    loop.send(late.span.bytes, to: id)
                    return bytes.byteCount
                }
            })
        let client = try stage.connect(receiveBuffer: 4096)
        try client.send("go, and some more that nobody reads")
        #expect(try client.receiveAll() == pattern(400_000))
        client.close()
        #expect(stage.diary.waitForEnd() == .closedHere)
    }

    @Test(arguments: backends)
    func `who takes no more is known before anything is dropped`(backend: SocketSettings.Backend) throws {
        let stage = try Stage(
            { $0.backend = backend },
            script: { scripted in
                scripted.onStopsTaking = { loop, id in
                    let late = Array("late".utf8)
                    loop.send(late.span.bytes, to: id)
                }
            })
        let client = try stage.connect()
        try client.send("early")
        #expect(try client.receive(5) == Array("early".utf8))
        // The text that is sent during the notice must still arrive, exactly once and before the end.
        client.finishSending()
        #expect(try client.receiveAll() == Array("late".utf8))
        #expect(stage.diary.waitForEnd() == .byPeer)
    }

    @Test func `a peer that takes nothing is closed by force when the time is up`() throws {
        let stage = try Stage({ $0.sendBuffer = 8192 })
        let client = try stage.connect(receiveBuffer: 4096)
        let id = try #require(stage.diary.waitForOpened(1))[0]
        stage.act { loop in
            let much = pattern(1_000_000)
            loop.send(much.span.bytes, to: id)
            loop.close(id, afterFlushing: .milliseconds(50))
        }
        #expect(stage.diary.waitForEnd() == .closedUnfinished)
        #expect(client.waitForEnd())
    }

    @Test func `a peer that never closes its side is not waited for longer than asked`() throws {
        let stage = try Stage()
        let client = try stage.connect()
        let id = try #require(stage.diary.waitForOpened(1))[0]
        stage.act { $0.close(id, afterFlushing: .milliseconds(30)) }
        #expect(stage.diary.waitForEnd() == .closedHere)
        #expect(try client.receiveAll().isEmpty)
    }

    @Test(arguments: backends)
    func `a peer that finished sending still gets its answer`(backend: SocketSettings.Backend) throws {
        let stage = try Stage(
            { $0.backend = backend },
            script: { scripted in
                scripted.onReceived = { loop, id, bytes in
                    let answer = pattern(300_000)
                    loop.send(answer.span.bytes, to: id)
                    return bytes.byteCount
                }
            })
        let client = try stage.connect()
        try client.send("question")
        client.finishSending()
        #expect(try client.receiveAll() == pattern(300_000))
        #expect(stage.diary.waitForEnd() == .byPeer)
    }

    @Test func `a reset is a failure with its reason`() throws {
        let stage = try Stage()
        let client = try stage.connect()
        _ = try #require(stage.diary.waitForOpened(1))
        client.reset()
        #expect(stage.diary.waitForEnd() == .failed(code: ECONNRESET))
    }

    @Test func `a connection may be aborted while its input is looked at`() throws {
        let stage = try Stage(script: { scripted in
            scripted.onReceived = { loop, id, bytes in
                loop.abort(id)
                loop.send(bytes.bytes, to: id)
                return 0
            }
        })
        let client = try stage.connect()
        try client.send("bytes")
        #expect(client.waitForEnd())
        #expect(stage.diary.waitForEnd() == .closedHere)
        let another = try stage.connect()
        #expect(stage.diary.waitForOpened(2) != nil)
        another.close()
    }

    @Test func `silence is told to the application, which says goodbye`() throws {
        let stage = try Stage(
            { $0.idleLimit = .milliseconds(40) },
            script: { scripted in
                scripted.onIdle = { loop, id in
                    let goodbye = Array("bye".utf8)
                    loop.send(goodbye.span.bytes, to: id)
                    loop.close(id, afterFlushing: .seconds(5))
                }
            })
        let client = try stage.connect()
        #expect(try client.receiveAll() == Array("bye".utf8))
        client.close()
        #expect(stage.diary.waitForEnd() == .closedHere)
        #expect(stage.diary.all.contains { if case .wentIdle = $0 { true } else { false } })
    }

    @Test(arguments: backends)
    func `every opened connection is told closed exactly once`(backend: SocketSettings.Backend) throws {
        let stage = try Stage { $0.backend = backend }
        let clients = try (0..<300).map { _ in try stage.connect() }
        _ = try #require(stage.diary.waitForOpened(300))
        for (number, client) in clients.enumerated() {
            if number % 3 == 0 { client.reset() } else if number % 3 == 1 { client.close() }
        }
        #expect(stage.diary.waitForEnd(199) != nil)
        stage.server.stop()
        let ids = stage.diary.all.compactMap { if case .closed(let id, _) = $0 { id } else { nil } }
        #expect(ids.count == 300)
        #expect(Set(ids).count == 300)
        let stopped = stage.diary.all.count { if case .closed(_, .stopped) = $0 { true } else { false } }
        #expect(stopped == 100)
        #expect(stage.metrics.connectionsOpen.value == 0)
    }
}

@Suite(.within(minutes: 10)) struct SlowReaderTests {
    /// Sends a frame of two pieces to all connections. The frame begins with `[` and ends with `]`.
    private func feed(_ stage: Stage, _ ids: [ConnectionID], turn: Int, frame: Int) {
        stage.act { loop in
            let body = [UInt8(ascii: "[")] + [UInt8](repeating: UInt8(97 + turn % 26), count: frame)
            let end = [UInt8(ascii: "]")]
            let (head, tail) = (loop.share(body.span.bytes), loop.share(end.span.bytes))
            for id in ids {
                loop.send(head, to: id)
                loop.send(tail, to: id, continues: true)
            }
        }
    }

    @Test(arguments: backends)
    func `a slow reader falls at a frame's edge, is told so, and nobody else notices`(
        backend: SocketSettings.Backend
    ) throws {
        let stage = try Stage(
            {
                $0.backend = backend
                $0.sendBuffer = 16_384
                $0.outboxBytes = 500_000
            },
            script: { scripted in
                scripted.onFellBehind = { loop, id in
                    let farewell = Array("!".utf8)
                    loop.send(farewell.span.bytes, to: id)
                    loop.close(id, afterFlushing: .seconds(20))
                }
            })
        let slow = try stage.connect(receiveBuffer: 4096)
        let id = try #require(stage.diary.waitForOpened(1))[0]
        let quick = try stage.connect()
        let all = try #require(stage.diary.waitForOpened(2))
        let (turns, frame) = (40, 50_000)
        for turn in 0..<turns {
            feed(stage, all, turn: turn, frame: frame)
            let arrived = try quick.receive(frame + 2)
            #expect(arrived.first == UInt8(ascii: "[") && arrived.last == UInt8(ascii: "]"))
            #expect(arrived[1] == UInt8(97 + turn % 26))
        }
        let queued = stage.diary.wait { entries in
            entries.lazy.compactMap { if case .fellBehind(id, let bytes) = $0 { bytes } else { nil } }.first
        }
        #expect(try #require(queued) > 500_000)
        let got = try slow.receiveAll()
        // The client receives whole frames, then the farewell.
        #expect(got.last == UInt8(ascii: "!"))
        #expect(got.dropLast().count % (frame + 2) == 0)
        #expect(got.count < turns * (frame + 2))
        #expect(got.dropLast().last == UInt8(ascii: "]") || got.count == 1)
        slow.close()
        #expect(stage.diary.waitForEnd() == .fellBehind)
        #expect(stage.metrics.connectionsFellBehind.value == 1)
        // The outbox memory is free again.
        stage.diary.wait { _ in stage.metrics.outboxBytes.value == 0 ? true : nil }
        #expect(stage.metrics.outboxBytes.value == 0)
        #expect(stage.metrics.connectionsBlocked.value == 0)
    }

    @Test(arguments: backends)
    func `whoever takes less than is sent is told of when that is much, and when all of it is taken`(
        backend: SocketSettings.Backend
    ) throws {
        let stage = try Stage({
            $0.backend = backend
            $0.sendBuffer = 16_384
        })
        let slow = try stage.connect(receiveBuffer: 4096)
        let id = try #require(stage.diary.waitForOpened(1))[0]
        func told(_ entry: Diary.Entry, times: Int) -> Bool? {
            stage.diary.wait { entries in entries.count { $0 == entry } >= times ? true : nil }
        }
        for round in 1...2 {
            for _ in 0..<60 { feed(stage, [id], turn: round, frame: 50_000) }
            // The loop repeats the notice as long as the application adds data.
            #expect(told(.filled(id), times: round) == true)
            let before = stage.diary.all.count { $0 == .drained(id) }
            #expect(before == round - 1, "nothing was taken")
            let arrived = try slow.receive(60 * 50_002)
            #expect(arrived.count == 60 * 50_002)
            #expect(told(.drained(id), times: round) == true)
        }
        #expect(stage.metrics.connectionsFellBehind.value == 0)
        slow.close()
        #expect(stage.diary.waitForEnd() != nil)
    }

    @Test func `the more are slow, the less of each is much`() throws {
        let stage = try Stage({
            $0.sendBuffer = 8192
            $0.outboxTotalBytes = 2 << 20
        })
        let clients = try (0..<10).map { _ in try stage.connect(receiveBuffer: 4096) }
        let ids = try #require(stage.diary.waitForOpened(10))
        for id in ids {
            stage.act { loop in
                let much = pattern(150_000)
                loop.send(much.span.bytes, to: id)
            }
            let done = Diary()
            stage.act { _ in done.write(.note("done")) }
            done.wait { $0.isEmpty ? nil : true }
        }
        #expect(stage.diary.wait { $0.contains(.filled(ids[9])) ? true : nil } == true)
        #expect(!stage.diary.all.contains(.filled(ids[0])))
        #expect(stage.metrics.connectionsFellBehind.value == 0)
        for client in clients { client.close() }
    }

    @Test func `the oldest byte may wait for so long only`() throws {
        let stage = try Stage({
            $0.sendBuffer = 8192
            $0.outboxAge = .milliseconds(60)
        })
        let slow = try stage.connect(receiveBuffer: 4096)
        let id = try #require(stage.diary.waitForOpened(1))[0]
        stage.act { loop in
            let much = pattern(300_000)
            loop.send(much.span.bytes, to: id)
        }
        let fell = stage.diary.wait { entries in
            entries.contains { if case .fellBehind(id, _) = $0 { true } else { false } } ? true : nil
        }
        #expect(fell == true)
        slow.close()
        #expect(stage.diary.waitForEnd() != nil)
    }

    @Test(arguments: backends)
    func `all who are blocked together hold no more than the total`(backend: SocketSettings.Backend) throws {
        let stage = try Stage({
            $0.backend = backend
            $0.sendBuffer = 8192
            $0.outboxTotalBytes = 2 << 20
        })
        let clients = try (0..<10).map { _ in try stage.connect(receiveBuffer: 4096) }
        let ids = try #require(stage.diary.waitForOpened(10))
        for (number, id) in ids.enumerated() {
            stage.act { loop in
                let own = pattern(400_000 + number * 1000)
                loop.send(own.span.bytes, to: id)
            }
            let done = Diary()
            stage.act { _ in done.write(.note("done")) }
            done.wait { $0.isEmpty ? nil : true }
        }
        let fell = stage.diary.wait { entries in
            entries.contains { if case .fellBehind = $0 { true } else { false } } ? true : nil
        }
        #expect(fell == true)
        for client in clients { client.close() }
        #expect(stage.diary.waitForEnd(9) != nil)
    }
}
