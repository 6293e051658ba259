import Bytes
import Diagnostics
import Glibc
import Net
import Synchronization
import System
import TestSupport
import Testing

@Suite(.within(minutes: 10)) struct ServerTests {
    @Test func `all loops share one port and every client is served`() throws {
        let stage = try Stage { $0.loopCount = 4 }
        let clients = try (0..<64).map { _ in try stage.connect() }
        for client in clients { try client.send("ping") }
        for client in clients { #expect(try client.receiveText(4) == "ping") }
        #expect(stage.metrics.connectionsAccepted.value == 64)
    }

    @Test func `a port that somebody listens on is refused`() throws {
        let stage = try Stage()
        #expect(throws: SystemError.self) { try Stage { $0.port = stage.server.port } }
    }

    @Test func `a name is listened on in every family it has`() throws {
        let stage = try Stage { $0.host = "localhost" }
        let client = try stage.connect()
        try client.send("x")
        #expect(try client.receiveText(1) == "x")
        #expect(Set(stage.server.addresses.map(\.port)).count == 1)
    }

    @Test(arguments: backends)
    func `loops with their own descriptor table serve, and keep nothing else open`(
        backend: SocketSettings.Backend
    ) throws {
        var ends: [Int32] = [0, 0]
        #expect(pipe(&ends) == 0)
        let stage = try Stage {
            $0.loopCount = 2
            $0.ownDescriptorTables = true
        }
        close(ends[1])
        // The test would wait without end if a loop kept the other end open.
        var byte: UInt8 = 0
        var entry = pollfd(fd: ends[0], events: Int16(POLLIN), revents: 0)
        #expect(poll(&entry, 1, 20_000) == 1)
        #expect(read(ends[0], &byte, 1) == 0)
        close(ends[0])
        let clients = try (0..<20).map { _ in try stage.connect() }
        for client in clients { try client.send("ping") }
        for client in clients { #expect(try client.receiveText(4) == "ping") }
    }

    @Test func `clients beyond the maximum are refused and the others stay`() throws {
        let stage = try Stage { $0.maximumConnections = 3 }
        let clients = try (0..<3).map { _ in try stage.connect() }
        _ = try #require(stage.diary.waitForOpened(3))
        let refused = try stage.connect()
        #expect(refused.waitForEnd())
        #expect(stage.metrics.connectionsRefused[.tooManyConnections].value == 1)
        try clients[0].send("still")
        #expect(try clients[0].receiveText(5) == "still")
        clients[1].close()
        #expect(stage.diary.waitForEnd() == .byPeer)
        let next = try stage.connect()
        try next.send("room")
        #expect(try next.receiveText(4) == "room")
    }

    @Test func `a loop without descriptors refuses clients and recovers`() throws {
        let stage = try Stage { $0.ownDescriptorTables = true }
        let first = try stage.connect()
        _ = try #require(stage.diary.waitForOpened(1))
        let taken = Mutex<[Int32]>([])
        let done = Diary()
        stage.act { loop in
            while let copy = DescriptorTable.duplicate(loop.bell.descriptor) { taken.withLock { $0.append(copy) } }
            done.write(.note("full"))
        }
        #expect(done.wait { $0.isEmpty ? nil : true } == true)
        let refused = try (0..<5).map { _ in try stage.connect() }
        for client in refused { #expect(client.waitForEnd()) }
        #expect(stage.metrics.connectionsRefused[.outOfDescriptors].value >= 5)
        try first.send("still")
        #expect(try first.receiveText(5) == "still")
        stage.act { _ in
            for descriptor in taken.withLock({ $0 }) { StreamSocket.close(descriptor) }
            done.write(.note("free"))
        }
        #expect(done.wait { $0.count == 2 ? true : nil } == true)
        let next = try stage.connect()
        try next.send("room")
        #expect(try next.receiveText(4) == "room")
    }

    @Test(arguments: backends)
    func `a storm of clients is taken in whole`(backend: SocketSettings.Backend) throws {
        let stage = try Stage {
            $0.loopCount = 2
            $0.backend = backend
            // With this setting, the clients can use the whole descriptor table of this process.
            $0.ownDescriptorTables = true
        }
        let count = 2400
        let failures = Mutex(0)
        let threads = try (0..<3).map { _ in
            try BackgroundThread("storm") {
                var clients: [TestClient] = []
                for _ in 0..<count / 3 {
                    guard let client = try? stage.connect() else {
                        failures.withLock { $0 += 1 }
                        continue
                    }
                    clients.append(client)
                }
                for client in clients { try? client.send("x") }
                for client in clients where (try? client.receive(1)) == nil { failures.withLock { $0 += 1 } }
            }
        }
        for thread in threads { thread.join() }
        #expect(failures.withLock { $0 } == 0)
        #expect(stage.diary.waitForEnd(count - 1) != nil)
    }

    @Test func `draining refuses new clients and serves the old ones`() throws {
        let stage = try Stage()
        let client = try stage.connect()
        _ = try #require(stage.diary.waitForOpened(1))
        stage.server.stopAccepting()
        // The second action runs in a turn that began after its request.
        for count in 1...2 {
            stage.act { _ in stage.diary.write(.note("turned")) }
            let turned = stage.diary.wait { entries in
                entries.count(where: { $0 == .note("turned") }) == count ? true : nil
            }
            #expect(turned == true)
        }
        // A server of another test may have the port by now, and accept the connection.
        let other = try? stage.connect()
        try? other?.send("other")
        try client.send("last")
        #expect(try client.receiveText(4) == "last")
        stage.server.stop()
        #expect(stage.diary.waitForEnd() == .stopped)
        #expect(client.waitForEnd())
        let opened = stage.diary.all.count { if case .opened = $0 { true } else { false } }
        #expect(opened == 1)
    }
}
