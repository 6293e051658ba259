import TestSupport
import Testing

@testable import Settings

private let password = "hunter2"

@Suite(.within(minutes: 5)) struct ClusterConfigurationTests {
    private func cluster(_ text: String, files: [String: String] = [:]) throws -> ClusterConfiguration? {
        let surroundings = surroundings(files: files.merging(["./tidewire.conf": text]) { $1 })
        return try Configuration.load(surroundings: surroundings).cluster(
            surroundings: surroundings, hostName: "hub-1.lan")
    }

    private func complaint(_ text: String, files: [String: String] = [:]) -> String {
        do {
            _ = try cluster(text, files: files)
            return ""
        } catch {
            return "\(error)"
        }
    }

    @Test func `a hub is alone unless the servers of a cluster are named`() throws {
        #expect(try cluster("") == nil)
        #expect(try cluster("cluster = ''\ncluster_node = a") == nil)
    }

    @Test func `has defaults for everything but the servers`() throws {
        let settings = try #require(try cluster("cluster = 'nats://a, nats://b:4333,nats://[::1]'"))
        #expect(settings.servers == ["nats://a:4222", "nats://b:4333", "nats://[::1]:4222"])
        #expect(settings.node == "hub-1-lan" && settings.login == .none && !settings.isEncrypted)
        #expect(settings.monitors == ["http://a:8222", "http://b:8222", "http://[::1]:8222"])
        #expect(settings.replicas == 3 && !settings.isTrial && settings.certificate == nil)
        #expect(settings.retentionAge == .seconds(72 * 3600) && settings.retentionBytes == 10 << 30)
    }

    @Test func `takes monitoring ports, a name and certificates`() throws {
        let files = ["/ca": "", "/c": "", "/k": ""]
        let settings = try #require(
            try cluster(
                """
                cluster = 'tls://a,tls://b'
                cluster_node = north_2
                cluster_monitor = 'https://a:8443/, http://b'
                cluster_ca = /ca
                cluster_certificate = /c
                cluster_key = /k
                cluster_replicas = 5
                retention_size = 0
                """, files: files))
        #expect(settings.servers == ["tls://a:4222", "tls://b:4222"] && settings.isEncrypted)
        #expect(settings.monitors == ["https://a:8443", "http://b:8222"] && settings.node == "north_2")
        #expect(settings.authoritiesFile == "/ca" && settings.certificate == .init(chain: "/c", key: "/k"))
        #expect(settings.replicas == 5 && settings.retentionBytes == nil)
        #expect(
            complaint("cluster = nats://a\ncluster_ca = /nowhere").contains(
                "cluster_ca: /nowhere: there is no such file"))
    }

    @Test(arguments: [
        ("nats://hub:hunter2@a,nats://hub:hunter2@b", "nats://hub:********@a:4222,nats://hub:********@b:4222"),
        ("nats://hub:hunter2@a,nats://b:1", "nats://hub:********@a:4222,nats://b:1"),
        ("nats://hunter2@a/", "nats://********@a:4222"), ("tls://h%75b:hunter2%40@a", "tls://hub:********@a:4222"),
    ])
    func `shows no login of an address`(text: String, shown: String) throws {
        let addresses = try #require(ClusterAddresses(text))
        #expect(addresses.redacted == shown)
        let surroundings = surroundings(environment: ["TIDEWIRE_CLUSTER": text])
        let configuration = try Configuration.load(surroundings: surroundings)
        let settings = try configuration.cluster(surroundings: surroundings, hostName: "h")
        var printed = "\(addresses) \(configuration) \(String(describing: settings))" + String(reflecting: settings)
        dump(configuration, to: &printed)
        dump(settings, to: &printed)
        printed += configuration.effective.map(\.shown).joined()
        #expect(!printed.contains(password))
        #expect(settings?.servers.joined().contains("@") == false)
    }

    @Test(arguments: [
        "a:4222", "http://a", "nats://", "nats://a:0", "nats://a:99999", "nats://a b", "nats://a/b", "nats://a,",
        "nats://u:hunter2@x@a", "nats://:hunter2@a", "nats://hunter2:@a", "nats://@a", "nats://u:hunter2%@a",
        "nats://u:hunter2%0a@a", "nats://a,tls://b", "nats://u:hunter2@a,nats://u:hunter3@b", "nats://u:hun/ter2@",
    ])
    func `refuses addresses that it cannot take apart, without repeating them`(text: String) {
        let found = complaints(overrides: [.flag(Setting(\.clusterServers), text)])
        #expect(found.count == 1)
        #expect(found.first?.hasPrefix("--cluster: cluster: expected URLs of NATS servers such as") == true)
        #expect(!found.joined().contains(password))
    }

    @Test func `takes the login of the addresses or of a file`() throws {
        #expect(try cluster("cluster = 'nats://hub:p%40ss@a'")?.login == .user("hub", password: Secret("p@ss")))
        #expect(try cluster("cluster = 'nats://to-ken@a'")?.login == .token(Secret("to-ken")))
        let base = "cluster = nats://a\n"
        #expect(
            try cluster(base + "cluster_token_file = /t", files: ["/t": "to-ken\n"])?.login == .token(Secret("to-ken")))
        let credentials =
            "-----BEGIN NATS USER JWT-----\nx\n------END NATS USER JWT------\n-----BEGIN USER NKEY SEED-----\n"
        #expect(
            try cluster(base + "cluster_credentials = /u.creds", files: ["/u.creds": credentials])?.login
                == .credentials(file: "/u.creds"))
        // The pair of NATS's manual.
        let seed = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
        #expect(
            try cluster(base + "cluster_nkey = /n", files: ["/n": "# mine\n\(seed)\n"])?.login
                == .nkey(seedFile: "/n", publicKey: "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"))
    }

    @Test func `refuses files without a login, and does not repeat what they have`() {
        let base = "cluster = nats://a\n"
        let damaged = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU4VY"
        for (name, content) in [
            ("cluster_nkey", damaged), ("cluster_nkey", "hunter2"), ("cluster_credentials", "hunter2"),
            ("cluster_token_file", ""), ("cluster_token_file", "hunter2\nhunter2"),
        ] {
            let found = complaint(base + "\(name) = /f", files: ["/f": content])
            #expect(found.contains("\(name): /f: "), "\(found)")
            #expect(!found.contains(password) && !found.contains(damaged))
            #expect(complaint(base + "\(name) = /f").contains("\(name): /f: there is no such file"))
        }
    }

    @Test func `refuses settings that do not fit each other`() {
        let base = "cluster = nats://a\n"
        for (lines, expected) in [
            ("cluster_certificate = /c", "cluster_certificate is of no use without cluster_key"),
            ("cluster_key = /k", "cluster_key is of no use without cluster_certificate"),
            ("cluster_replicas = 1", "cluster_replicas = 1 loses the log with one server; only a trial may have it"),
            ("cluster_nkey = /n\ncluster_token_file = /t", "give one login, not cluster_nkey and cluster_token_file"),
        ] {
            #expect(complaint(base + lines).contains(expected))
        }
        #expect(
            complaint("cluster = 'nats://t@a'\ncluster_nkey = /n").contains(
                "give one login, not cluster_nkey and the login in cluster"))
        #expect(complaint(base + "cluster_replicas = 1\ncluster_trial = on") == "")
        for line in ["cluster_replicas = 2", "cluster_node = a.b", "cluster_node = 'a b'", "cluster_monitor = a:8222"] {
            #expect(complaints(files: ["./tidewire.conf": line]).count == 1, "\(line)")
        }
    }

    @Test func `makes a node's name of any host name`() {
        #expect(NodeName.derived(from: "hub-0") == "hub-0" && NodeName.derived(from: "hub.a.com") == "hub-a-com")
        #expect(NodeName.isValid(NodeName.derived(from: "")) && NodeName.isValid(NodeName.derived(from: "hübe *")))
        #expect(NodeName.derived(from: String(repeating: "x", count: 255)).utf8.count == 63)
    }
}
