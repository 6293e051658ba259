import ClusterChecks
import Foundation
import Settings
import System
import TestSupport
import Testing

@testable import Server

/// Surveys of real NATS servers, in configurations that a cluster may and may not have.
@Suite(.within(minutes: 5)) struct ClusterSurveyTests {
    /// Returns the configuration of a hub for the servers. The log is small, so that the test needs no large disk.
    private func cluster(_ servers: NatsServers, _ settings: [String: String] = [:]) throws -> ClusterConfiguration {
        let environment = [
            "TIDEWIRE_CLUSTER": servers.url, "TIDEWIRE_CLUSTER_MONITOR": servers.monitorURL,
            "TIDEWIRE_RETENTION_SIZE": "64MB",
        ].merging(settings) { $1 }
        return try #require(
            try Configuration.load(surroundings: .only(environment)).cluster(
                surroundings: .ofThisProcess, hostName: "hub"))
    }

    private func options(
        count: Int = 1, _ change: (inout NatsServers.Options) -> Void = { _ in }
    ) -> NatsServers.Options {
        var options = NatsServers.Options(count: count)
        change(&options)
        return options
    }

    /// Settings of a trial with one server, in which only the fault of the test remains.
    private static let alone = ["TIDEWIRE_CLUSTER_TRIAL": "on", "TIDEWIRE_CLUSTER_REPLICAS": "1"]

    @Test func `three servers with a login are fit, whichever of them is away`() throws {
        let servers = try NatsServers(options(count: 3) { $0.login = .user("hub", password: "se:cret@1") })
        let encoded = servers.url.replacing("se:cret@1", with: "se%3Acret%401")
        let cluster = try cluster(servers, ["TIDEWIRE_CLUSTER": encoded])
        #expect(ClusterSurvey.findings(of: cluster).isEmpty)
        try ClusterSurvey.admit(cluster)
        servers.kill(1)
        #expect(eventually { ClusterSurvey.findings(of: cluster).first?.kind == .silent })
        #expect(eventually { ClusterSurvey.findings(of: cluster).allSatisfy { $0.severity == .warning } })
        try ClusterSurvey.admit(cluster)
    }

    @Test func `one lazy server is refused for three replicas, and admitted to a trial`() throws {
        let servers = try NatsServers(options { $0.syncInterval = nil })
        let refused = try cluster(servers)
        let found = ClusterSurvey.findings(of: refused)
        #expect(found.map(\.kind) == [.lazySync, .tooFewServers, .open])
        #expect(found.map(\.severity) == [.refusal, .refusal, .warning])
        let failure = #expect(throws: HubError.self) { try ClusterSurvey.admit(refused) }
        #expect(failure?.description.contains("s1: the server writes to its disk only every 120 s") == true)
        #expect(failure?.advice.contains("sync_interval: always") == true && failure?.isUnreachable == false)
        try ClusterSurvey.admit(cluster(servers, Self.alone))
    }

    @Test func `a hub does not start with servers without JetStream`() throws {
        let servers = try NatsServers(options { $0.hasJetStream = false })
        let found = try ClusterSurvey.findings(of: cluster(servers))
        #expect(found.map(\.kind) == [.jetStreamOff, .open] && found.first?.servers == ["s1"])
        let configuration = try Configuration.load(
            surroundings: .only([
                "TIDEWIRE_CLUSTER": servers.url, "TIDEWIRE_CLUSTER_MONITOR": servers.monitorURL,
                "TIDEWIRE_DATA_DIR": "/nowhere/at/all", "TIDEWIRE_DATABASE_URL": "postgres://nowhere/app",
            ]))
        let failure = #expect(throws: HubError.self) { try Hub(configuration) }
        #expect(failure?.description.contains("s1: JetStream is off") == true)
    }

    @Test func `a server that takes small messages only is refused`() throws {
        let servers = try NatsServers(options { $0.lines = "max_payload: 65536" })
        let found = try ClusterSurvey.findings(of: cluster(servers))
        #expect(found.map(\.kind) == [.tooFewServers, .payload, .open])
        #expect(found[1].configuration == "max_payload: 1MB")
    }

    @Test(arguments: ["nats://hub:wrong-one@", "nats://", "nats://to-ken@"])
    func `a wrong login is refused, and not repeated`(prefix: String) throws {
        let servers = try NatsServers(options { $0.login = .user("hub", password: "right-one") })
        let url = "\(prefix)127.0.0.1:\(servers.clientPorts[0])"
        let cluster = try cluster(servers, Self.alone.merging(["TIDEWIRE_CLUSTER": url]) { $1 })
        let failing = ClusterSurvey.findings(of: cluster)
        let isKnown = failing.contains { $0.kind == .connection && $0.severity == .refusal || $0.kind == .loginWanted }
        #expect(isKnown, "\(failing)")
        #expect(!"\(failing)".contains("wrong-one") && !"\(failing)".contains("to-ken"))
    }

    @Test func `every kind of login lets the hub in`() throws {
        let files = TemporaryDirectory.make("logins")
        try "to-ken\n".write(toFile: files + "/token", atomically: true, encoding: .utf8)
        // The pair of NATS's manual.
        try "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY\n".write(
            toFile: files + "/seed", atomically: true, encoding: .utf8)
        let logins: [(NatsServers.Login, [String: String])] = [
            (.token("to-ken"), [:]),
            (.token("to-ken"), ["TIDEWIRE_CLUSTER_TOKEN_FILE": files + "/token"]),
            (
                .nkeys(["UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"]),
                ["TIDEWIRE_CLUSTER_NKEY": files + "/seed"]
            ),
        ]
        for (login, settings) in logins {
            let servers = try NatsServers(options { $0.login = login })
            var all = Self.alone.merging(settings) { $1 }
            if settings["TIDEWIRE_CLUSTER_TOKEN_FILE"] != nil {
                all["TIDEWIRE_CLUSTER"] = "nats://127.0.0.1:\(servers.clientPorts[0])"
            }
            #expect(try ClusterSurvey.findings(of: cluster(servers, all)).isEmpty, "\(settings)")
        }
    }

    @Test func `certificates are checked on both sides`() throws {
        let files = try TLSFiles.make(hosts: ["127.0.0.1"])
        let servers = try NatsServers(
            options {
                $0.tls = .init(certificate: files.certificate, key: files.key, clientAuthority: files.authority)
            })
        let own = [
            "TIDEWIRE_CLUSTER_CA": files.authority, "TIDEWIRE_CLUSTER_CERTIFICATE": files.certificate,
            "TIDEWIRE_CLUSTER_KEY": files.key,
        ].merging(Self.alone) { $1 }
        #expect(try ClusterSurvey.findings(of: cluster(servers, own)).map(\.kind) == [.open])
        let other = try TLSFiles.make(hosts: ["127.0.0.1"])
        for changes in [
            ["TIDEWIRE_CLUSTER_CA": other.authority],
            ["TIDEWIRE_CLUSTER_CERTIFICATE": other.certificate, "TIDEWIRE_CLUSTER_KEY": other.key],
        ] {
            let found = try ClusterSurvey.findings(of: cluster(servers, own.merging(changes) { $1 }))
            let connection = try #require(found.first { $0.kind == .connection }, "\(changes): \(found)")
            #expect(connection.repair.contains("cluster_ca"), "\(connection)")
        }
        let plain = servers.url.replacing("tls://", with: "nats://")
        let found = try ClusterSurvey.findings(
            of: cluster(servers, Self.alone.merging(["TIDEWIRE_CLUSTER": plain]) { $1 }))
        #expect(found.map(\.kind) == [.encrypted, .open])
    }

    @Test func `a hub waits for servers that start late, and not for ever`() throws {
        let servers = try NatsServers(.init(count: 1))
        servers.kill(0)
        let settings = try cluster(servers, Self.alone)
        let found = ClusterSurvey.findings(of: settings)
        #expect(found.map(\.kind) == [.silent, .connection] && found.allSatisfy { $0.severity == .wait })
        let failure = #expect(throws: HubError.self) { try ClusterSurvey.admit(settings, within: .seconds(1)) }
        #expect(failure?.isUnreachable == true)
        let admitted = Awaited<Bool>()
        _ = try BackgroundThread("admission") {
            admitted.set((try? ClusterSurvey.admit(settings)) != nil)
        }
        try servers.startAll()
        #expect(admitted.wait() == true)
    }
}
