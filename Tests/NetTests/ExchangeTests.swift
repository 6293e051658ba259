import Bytes
import Diagnostics
import Glibc
import Net
import Synchronization
import System
import TestSupport
import Testing

/// Application that consumes whole lines, and answers each with its length.
private let lineLengths: @Sendable (SocketLoop, ConnectionID, inout MutableRawSpan) -> Int = { loop, id, bytes in
    var consumed = 0
    for at in 0..<bytes.byteCount where bytes.bytes.unsafeLoad(fromByteOffset: at, as: UInt8.self) == 10 {
        let answer = Array("\(at - consumed);".utf8)
        loop.send(answer.span.bytes, to: id)
        consumed = at + 1
    }
    return consumed
}

@Suite(.within(minutes: 10)) struct ExchangeTests {
    @Test(arguments: backends)
    func `sends back what it receives`(backend: SocketSettings.Backend) throws {
        let stage = try Stage { $0.backend = backend }
        let client = try stage.connect()
        try client.send("hello")
        #expect(try client.receiveText(5) == "hello")
        client.close()
        #expect(stage.diary.waitForEnd() == .byPeer)
    }

    @Test func `shows what was not consumed again, however the bytes come`() throws {
        let stage = try Stage(script: { $0.onReceived = lineLengths })
        let client = try stage.connect()
        for byte in Array("first\nsecond one\n\n".utf8) { try client.send([byte]) }
        #expect(try client.receiveText(7) == "5;10;0;")
        try client.send(String(repeating: "x", count: 300_000) + "\nrest")
        #expect(try client.receiveText(7) == "300000;")
        try client.send("\n")
        #expect(try client.receiveText(2) == "4;")
    }

    @Test func `does not ask before the bytes that are awaited are there`() throws {
        let whole = 3_000_000
        let stage = try Stage(script: { scripted in
            let calls = Mutex(0)
            scripted.onReceived = { loop, id, bytes in
                guard bytes.byteCount >= whole else {
                    calls.withLock { $0 += 1 }
                    loop.awaitBytes(whole, for: id)
                    return 0
                }
                var sum: UInt64 = 0
                for at in 0..<whole { sum &+= UInt64(bytes.bytes.unsafeLoad(fromByteOffset: at, as: UInt8.self)) }
                let answer = Array("\(calls.withLock { $0 }) \(sum)\n".utf8)
                loop.send(answer.span.bytes, to: id)
                return whole
            }
        })
        let client = try stage.connect()
        let message = pattern(whole)
        try client.send(message)
        let expected = "1 \(message.reduce(0) { $0 + UInt64($1) })\n"
        #expect(try client.receiveText(expected.utf8.count) == expected)
    }

    @Test func `closes on a message that is larger than the limit`() throws {
        let stage = try Stage({ $0.receiveBytes = 100_000 }, script: { $0.onReceived = { _, _, _ in 0 } })
        let client = try stage.connect()
        _ = try? client.send(pattern(200_000))
        #expect(client.waitForEnd())
        #expect(stage.diary.waitForEnd() == .inputTooLong)
    }

    @Test func `an application that takes some in each turn is not sent more than it can keep`() throws {
        let stage = try Stage(
            { $0.receiveBytes = 200_000 },
            script: {
                $0.onReceived = { loop, id, bytes in
                    let taken = min(bytes.byteCount, 5000)
                    loop.send(bytes.bytes.extracting(first: taken), to: id)
                    if taken < bytes.byteCount { loop.redeliverInput(id) }
                    return taken
                }
            })
        let client = try stage.connect()
        let message = pattern(2_000_000)
        let sender = try BackgroundThread("sender") { _ = try? client.send(message) }
        #expect(try client.receive(message.count) == message)
        sender.join()
    }

    @Test(arguments: backends)
    func `a shared piece reaches everybody, in order with their own`(backend: SocketSettings.Backend) throws {
        let stage = try Stage { $0.backend = backend }
        let clients = try (0..<50).map { _ in try stage.connect() }
        let ids = try #require(stage.diary.waitForOpened(50))
        stage.act { loop in
            let (first, large) = (Array("<first>".utf8), pattern(10_000))
            let shared = loop.share(first.span.bytes)
            let second = loop.share(large.span.bytes)
            for (number, id) in ids.enumerated() {
                loop.send(shared, to: id)
                let own = Array("<\(100 + number)>".utf8)
                loop.send(own.span.bytes, to: id)
                loop.send(second, to: id)
                loop.send(shared, to: id)
            }
        }
        var own: Set<String> = []
        for client in clients {
            #expect(try client.receiveText(7) == "<first>")
            own.insert(try client.receiveText(5))
            #expect(try client.receive(10_000) == pattern(10_000))
            #expect(try client.receiveText(7) == "<first>")
        }
        #expect(own.count == 50)
    }

    @Test func `a piece may be made of parts, any of them empty`() throws {
        let stage = try Stage()
        let client = try stage.connect()
        let id = try #require(stage.diary.waitForOpened(1))[0]
        stage.act { loop in
            let (head, body, tail) = (Array("head".utf8), pattern(100_000), Array("tail".utf8))
            loop.send(loop.share(head.span.bytes, body.span.bytes, tail.span.bytes), to: id)
            loop.send(loop.share(RawSpan(), tail.span.bytes, RawSpan()), to: id)
            loop.send(loop.share(head.span.bytes, RawSpan(), tail.span.bytes), to: id)
        }
        #expect(try client.receiveText(4) == "head")
        #expect(try client.receive(100_000) == pattern(100_000))
        #expect(try client.receiveText(16) == "tailtailheadtail")
    }

    @Test(arguments: backends)
    func `what comes while many are sent to has a turn of its own`(backend: SocketSettings.Backend) throws {
        let stage = try Stage(
            { $0.backend = backend },
            script: { scripted in
                scripted.onReceived = { [unowned scripted] _, id, bytes in
                    // The answer is sent at the end of a turn, like presence.
                    scripted.acts.withLock { acts in
                        acts.append { loop in
                            let answer = Array("!".utf8)
                            loop.send(answer.span.bytes, to: id)
                        }
                    }
                    return bytes.byteCount
                }
            })
        let clients = try (0..<Limits.sendsBetweenReads).map { _ in try stage.connect() }
        let ids = try #require(stage.diary.waitForOpened(clients.count))
        stage.act { loop in
            let all = Array("all".utf8)
            let shared = loop.share(all.span.bytes)
            for id in ids { loop.send(shared, to: id) }
            // The data arrives before the loop has sent to the last client. Nothing else happens afterwards.
            try? clients[0].send("x")
        }
        #expect(try clients[0].receiveText(4) == "all!")
    }

    @Test(arguments: backends)
    func `many pieces of all sizes arrive whole through a small send buffer`(backend: SocketSettings.Backend) throws {
        let stage = try Stage({
            $0.backend = backend
            $0.sendBuffer = 8192
        })
        let client = try stage.connect(receiveBuffer: 4096)
        let id = try #require(stage.diary.waitForOpened(1))[0]
        let sizes = [1, 2000, 70_000, 3, 2048, 2049, 1_000_000, 500, 500, 500, 4096, 10]
        for turn in 0..<3 {
            stage.act { loop in
                for (number, size) in sizes.enumerated() {
                    let bytes = pattern(size, seed: turn &* 1000 &+ number)
                    loop.send(bytes.span.bytes, to: id)
                }
            }
        }
        for turn in 0..<3 {
            for (number, size) in sizes.enumerated() {
                let arrived = try client.receive(size)
                #expect(arrived == pattern(size, seed: turn &* 1000 &+ number), "turn \(turn), piece \(number)")
            }
        }
    }

    @Test(arguments: backends)
    func `thousands of pieces in one turn keep their order`(backend: SocketSettings.Backend) throws {
        let stage = try Stage { $0.backend = backend }
        let client = try stage.connect()
        let id = try #require(stage.diary.waitForOpened(1))[0]
        stage.act { loop in
            let mark = Array("|".utf8)
            let shared = loop.share(mark.span.bytes)
            for number in 0..<20_000 {
                let own = Array("\(number)".utf8)
                loop.send(own.span.bytes, to: id)
                loop.send(shared, to: id)
            }
        }
        let expected = (0..<20_000).map { "\($0)|" }.joined()
        #expect(try client.receiveText(expected.utf8.count) == expected)
    }

    @Test func `a paused connection waits, and is shown what it left when it goes on`() throws {
        let stage = try Stage(script: { scripted in
            let isReady = Mutex(false)
            scripted.onReceived = { loop, id, bytes in
                let mayAnswer = isReady.withLock { ready in
                    defer { ready = true }
                    return ready
                }
                guard mayAnswer else {
                    loop.pauseReading(id)
                    return 0
                }
                loop.send(bytes.bytes, to: id)
                return bytes.byteCount
            }
        })
        let client = try stage.connect()
        let id = try #require(stage.diary.waitForOpened(1))[0]
        try client.send("wait")
        // A call of resume has no effect before a pause was requested.
        let resumed = Diary()
        for _ in 0..<200 {
            stage.act { loop in
                loop.resumeReading(id)
                resumed.write(.note("asked"))
            }
            resumed.wait { $0.isEmpty ? nil : true }
            usleep(1000)
        }
        #expect(try client.receiveText(4) == "wait")
        try client.send("more")
        #expect(try client.receiveText(4) == "more")
    }

    @Test func `calls with the id of a connection that is gone are ignored`() throws {
        let stage = try Stage()
        let first = try stage.connect()
        let stale = try #require(stage.diary.waitForOpened(1))[0]
        first.close()
        #expect(stage.diary.waitForEnd() == .byPeer)
        let second = try stage.connect()
        let fresh = try #require(stage.diary.waitForOpened(2))[1]
        #expect(fresh.seat == stale.seat)
        #expect(fresh.generation != stale.generation)
        stage.act { loop in
            let (wrong, right) = (Array("wrong".utf8), Array("right".utf8))
            loop.send(wrong.span.bytes, to: stale)
            loop.close(stale, afterFlushing: .zero)
            loop.abort(stale)
            loop.pauseReading(stale)
            loop.setIdleLimit(.milliseconds(1), for: stale)
            loop.send(wrong.span.bytes, to: ConnectionID(seat: .max, generation: 1))
            #expect(loop.queuedBytes(of: stale) == 0)
            loop.send(right.span.bytes, to: fresh)
        }
        #expect(try second.receiveText(5) == "right")
    }
}
