import Calling
import Glibc
import TestSupport
import Testing

@Suite(.within(minutes: 5)) struct NatsServersTests {
    @Test func `three servers elect another leader after one is killed, and take it back`() throws {
        let servers = try NatsServers()
        #expect(servers.names == ["s1", "s2", "s3"] && servers.count == 3)
        let leader = try #require(servers.metaLeader)
        servers.kill(leader)
        #expect(!servers.isRunning(leader) && servers.page(leader, "varz") == nil)
        #expect(eventually { servers.metaLeader.map { $0 != leader } ?? false }, "another leader: \(servers.logs)")
        try servers.start(leader)
        try servers.waitUntilReady()
        #expect((0..<3).allSatisfy { servers.isRunning($0) })
        let other = (leader + 1) % 3
        servers.terminate(other)
        #expect(!servers.isRunning(other))
        try servers.restart(leader)
        try servers.startAll()
    }

    @Test func `a paused server does not answer until it is resumed`() throws {
        let servers = try NatsServers(.init(count: 1))
        #expect(servers.page(0, "varz") != nil)
        servers.pause(0)
        #expect(servers.isRunning(0) && eventually { servers.page(0, "varz") == nil })
        servers.resume(0)
        #expect(eventually { servers.page(0, "varz") != nil })
        servers.pause(0)
        servers.terminate(0)
        #expect(!servers.isRunning(0))
    }

    @Test func `servers ask for the login of the options, and say nothing of it in their monitoring pages`() throws {
        let logins: [NatsServers.Login] = [.user("hub", password: "se-cret"), .token("to-ken"), .nkeys([Self.nkey])]
        for login in logins {
            var options = NatsServers.Options(count: 1)
            options.login = login
            let servers = try NatsServers(options)
            let page = try String(decoding: #require(servers.page(0, "varz")), as: UTF8.self)
            #expect(page.contains("\"auth_required\": true"), "\(login)")
        }
        var options = NatsServers.Options(count: 1)
        options.login = logins[0]
        options.hasJetStream = false
        let servers = try NatsServers(options)
        #expect(servers.url == "nats://hub:se-cret@127.0.0.1:\(servers.clientPorts[0])")
    }

    @Test func `servers encrypt with the files of the options`() throws {
        let files = try TLSFiles.make(hosts: ["127.0.0.1", "localhost"])
        var options = NatsServers.Options(count: 1)
        options.tls = .init(certificate: files.certificate, key: files.key, clientAuthority: files.authority)
        let servers = try NatsServers(options)
        let page = try String(decoding: #require(servers.page(0, "varz")), as: UTF8.self)
        #expect(page.contains("\"tls_required\": true") && page.contains("\"tls_verify\": true"))
        #expect(servers.url.hasPrefix("tls://127.0.0.1:"))
    }

    @Test func `a server that cannot start says why`() throws {
        var options = NatsServers.Options(count: 1)
        options.lines = "max_payload: nonsense"
        let failure = #expect(throws: NatsServers.Failure.self) { try NatsServers(options) }
        #expect(failure?.description.contains("nats.conf:") == true)
    }

    @Test func `servers and their directory end with the object`() throws {
        var servers: NatsServers? = try NatsServers(.init(count: 1))
        let directory = try #require(servers?.directory)
        let process = try #require(servers?.processID(0))
        #expect(access(directory, F_OK) == 0)
        servers = nil
        #expect(access(directory, F_OK) != 0)
        #expect(kill(process, 0) != 0)
    }

    /// Public key of a user that the server knows by its nkey.
    private static let nkey = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
}
