import Bytes
import COpenSSL
import Crypto
import Diagnostics
import Glibc
import Net
import System
import TestSupport
import Testing

@Suite(.within(minutes: 10)) struct TLSTests {
    private func withStage(
        _ change: (inout SocketSettings) -> Void = { _ in }, script: @escaping @Sendable (Scripted) -> Void = { _ in },
        _ body: (Stage, Certificate) throws -> Void
    ) throws {
        let files = try Certificate()
        defer { files.remove() }
        try files.make(name: "first")
        let stage = try Stage(
            {
                $0.tls = .init(certificate: files.certificate, key: files.key)
                change(&$0)
            }, script: script)
        try body(stage, files)
        stage.server.stop()
    }

    @Test(arguments: [Int32(TLS1_2_VERSION), Int32(TLS1_3_VERSION)])
    func `sends back what it receives, in every version it allows`(version: Int32) throws {
        try withStage { stage, _ in
            let client = try TLSClient(try stage.connect(), maximumVersion: version)
            #expect(client.version == (version == TLS1_2_VERSION ? "TLSv1.2" : "TLSv1.3"))
            for size in [1, 100, 16_383, 16_384, 16_385, 60_000] {
                let bytes = pattern(size)
                try client.send(bytes)
                #expect(try client.receive(size) == bytes)
            }
        }
    }

    /// Checks a write to a closed connection: it must not raise a signal, which would end the tests and also an app.
    @Test func `to write to who is gone is an error, not a signal, at either end`() throws {
        try withStage { stage, _ in
            let client = try TLSClient(try stage.connect())
            let id = try #require(stage.diary.waitForOpened(1))[0]
            stage.act { loop in loop.close(id, afterFlushing: .zero) }
            #expect(stage.diary.waitForEnd() == .closedHere)
            #expect(throws: ClientFailure.self) {
                for _ in 0..<1000 { try client.send(pattern(60_000)) }
            }
            let other = try TLSClient(try stage.connect())
            let otherID = try #require(stage.diary.waitForOpened(2))[1]
            other.socket.close()
            stage.act { loop in
                for _ in 0..<3 { loop.send(pattern(16_000).span.bytes, to: otherID) }
            }
            #expect(stage.diary.waitForEnd(1) != nil)
        }
    }

    @Test func `an older version is refused`() throws {
        try withStage { stage, _ in
            #expect(throws: ClientFailure.self) {
                try TLSClient(try stage.connect(), maximumVersion: Int32(TLS1_1_VERSION))
            }
            stage.diary.wait { _ in stage.metrics.connectionsRefused[.handshake].value == 1 ? true : nil }
            #expect(stage.diary.all.isEmpty)
        }
    }

    @Test func `large answers arrive whole through a small send buffer, in order`() throws {
        try withStage({ $0.sendBuffer = 8192 }) { stage, _ in
            // If each window is acknowledged late, as on a machine that stalls at times, this takes a minute or two.
            let client = try TLSClient(try stage.connect(receiveBuffer: 8192))
            let id = try #require(stage.diary.waitForOpened(1))[0]
            let sizes = [10, 40_000, 300, 300, 16_384, 150_000, 1, 2, 20_000]
            for turn in 0..<2 {
                stage.act { loop in
                    for (number, size) in sizes.enumerated() {
                        let bytes = pattern(size, seed: turn &* 100 &+ number)
                        loop.send(bytes.span.bytes, to: id)
                    }
                    if turn == 1 { loop.close(id, afterFlushing: .seconds(240)) }
                }
            }
            var expected: [UInt8] = []
            for turn in 0..<2 {
                for (number, size) in sizes.enumerated() { expected += pattern(size, seed: turn &* 100 &+ number) }
            }
            let got = client.receiveAll()
            #expect(got == expected)
            client.socket.close()
            #expect(stage.diary.waitForEnd() == .closedHere)
        }
    }

    @Test func `a slow reader is cut between frames and the record under way stays whole`() throws {
        try withStage(
            {
                $0.sendBuffer = 8192
                $0.outboxBytes = 300_000
            },
            script: { scripted in
                scripted.onFellBehind = { loop, id in
                    let farewell = Array("!".utf8)
                    loop.send(farewell.span.bytes, to: id)
                    loop.close(id, afterFlushing: .seconds(120))
                }
            }
        ) { stage, _ in
            let client = try TLSClient(try stage.connect(receiveBuffer: 4096))
            let id = try #require(stage.diary.waitForOpened(1))[0]
            for _ in 0..<200 {
                stage.act { loop in
                    let frame = [UInt8(ascii: "[")] + [UInt8](repeating: 46, count: 2998) + [UInt8(ascii: "]")]
                    for _ in 0..<5 { loop.send(frame.span.bytes, to: id) }
                }
            }
            let fell = stage.diary.wait { entries in
                entries.contains { if case .fellBehind = $0 { true } else { false } } ? true : nil
            }
            #expect(fell == true)
            let got = try #require(client.receiveAll())
            #expect(got.last == UInt8(ascii: "!"))
            #expect((got.count - 1) % 3000 == 0)
            client.socket.close()
            #expect(stage.diary.waitForEnd() == .fellBehind)
        }
    }

    @Test func `a client that does not shake hands is closed in time, and bytes that are no TLS at once`() throws {
        try withStage({ $0.handshakeLimit = .milliseconds(50) }) { stage, _ in
            let silent = try stage.connect()
            #expect(silent.waitForEnd())
            let babbling = try stage.connect()
            try babbling.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            #expect(babbling.waitForEnd())
            stage.diary.wait { _ in stage.metrics.connectionsRefused[.handshake].value == 2 ? true : nil }
            #expect(stage.metrics.connectionsRefused[.handshake].value == 2)
            #expect(stage.diary.all.isEmpty)
        }
    }

    @Test func `a reload serves the new certificate to new clients, a bad file changes nothing`() throws {
        try withStage { stage, files in
            let old = try TLSClient(try stage.connect())
            #expect(old.subject == "/CN=first")
            try files.make(name: "second")
            try stage.server.reloadTLS()
            #expect(try TLSClient(try stage.connect()).subject == "/CN=second")
            try files.spoil()
            #expect(throws: TLSConfigurationError.self) { try stage.server.reloadTLS() }
            #expect(try TLSClient(try stage.connect()).subject == "/CN=second")
            try old.send(Array("still".utf8))
            #expect(try old.receive(5) == Array("still".utf8))
        }
    }

    @Test func `a server does not start on a certificate that is not there`() throws {
        #expect(throws: TLSConfigurationError.self) {
            try Stage { $0.tls = .init(certificate: "/nowhere/certificate.pem", key: "/nowhere/key.pem") }
        }
    }

    @Test func `a peer that finished inside TLS gets what was queued, then its end`() throws {
        try withStage(script: { scripted in
            scripted.onReceived = { loop, id, bytes in
                let answer = pattern(100_000)
                loop.send(answer.span.bytes, to: id)
                return bytes.byteCount
            }
        }) { stage, _ in
            let client = try TLSClient(try stage.connect())
            try client.send(Array("question".utf8))
            client.finish()
            #expect(try client.receive(100_000) == pattern(100_000))
            #expect(stage.diary.waitForEnd() == .byPeer)
        }
    }
}
