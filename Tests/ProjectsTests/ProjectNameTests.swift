import Bytes
import TestSupport
import Testing
import WebSocket

@testable import Projects
@testable import Settings

/// Tests of the rules for project names, secrets and addresses: the hub must refuse a description that cannot work.
@Suite(.within(minutes: 5)) struct ProjectNameTests {
    private static let good = [
        "a", "shop", "s-1", "s_1", "7", "a7", "7a", "xn--w-uga", "abcdefghijklmnopqrst",
        String(repeating: "a", count: 63),
    ]
    .filter { $0 != "7" }
    private static let bad = [
        "Shop", "sh.op", "../x", "wé", "we\u{301}", "127", "7", "-a", "a-", "_a", "a_", "a b", "a/b", "a:4000", "[a]",
        "a%62",
        "a\u{0}", "a\n", "ａ", ".", "", "*", String(repeating: "a", count: 64),
    ]

    private func tenant(_ name: String) -> String {
        tenantText("NAME").replacing("\"NAME\"", with: JSONValue.string(name).text)
    }

    @Test func `a new project's name is the first label of a host`() throws {
        for name in Self.good { #expect(try mistakes(tenant(name)) == nil, "\(name)") }
        for name in Self.bad { #expect(try mistakes(tenant(name))?.contains("external_id") == true, "\(name)") }
        // An existing project is changed and keeps its name.
        var old = try recorded(tenant("app"))
        old = ProjectRecord(
            id: old.id, externalID: "Sh.op", insertedAt: 0, updatedAt: 0, fields: old.fields, extensions: old.extensions
        )
        let changed = try recorded(#"{"suspend":true}"#, replacing: old, named: "Sh.op")
        #expect(changed.externalID == "Sh.op" && changed.isSuspended)
    }

    @Test(arguments: seeds(300))
    func `a name that is taken leads to its project by every host that begins with it`(seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let letters = Array("ab1_-.A%:é[/ ")
        let name = String((0..<Int.random(in: 1...5, using: &random)).map { _ in random.pick(letters) })
        guard try mistakes(tenant(name)) == nil else { return }
        for host in [
            name, name.uppercased(), "\(name).hub.example", "\(name):4000", "\(name).", "\(name).127.example:80",
        ] {
            let found = try request("GET", "http://\(host)/")
            #expect(found.host?.label == name, "\(name) \(host)")
        }
    }

    @Test func `a secret is as long as the signatures that are made with it`() throws {
        func secret(_ count: Int) -> String { #""jwt_secret":"\#(String(repeating: "s", count: count))""# }
        let usual = #""jwt_secret":"s3cret-of-thirty-two-bytes-or-more""#
        for (count, isGood) in [(1, false), (5, false), (31, false), (32, true), (200, true)] {
            let said = try mistakes(tenantText().replacing(usual, with: secret(count)))
            #expect(said == (isGood ? nil : #"{"errors":{"jwt_secret":["must have 32 bytes or more"]}}"#), "\(count)")
        }
        // A weak secret that was stored earlier may be sent again, but not a new one.
        var old = try recorded(tenantText())
        old.fields["jwt_secret"] = .string("short")
        #expect(try mistakes(#"{"external_id":"app","jwt_secret":"short"}"#, replacing: old) == nil)
        #expect(try mistakes(#"{"external_id":"app","jwt_secret":"other"}"#, replacing: old) != nil)
    }

    @Test func `an address says nothing of the hub's machine`() throws {
        func address(_ text: String) throws -> String? {
            try mistakes(
                tenantText().replacing(databaseSettings, with: #""database_url":\#(JSONValue.string(text).text)"#))
        }
        for good in [
            "postgresql://u:p@db.example:6543/app?sslmode=verify-full&sslrootcert=/etc/ssl/ca.pem",
            "host=db port=5432 dbname=app user=u password='it\\'s' connect_timeout=3",
            "postgresql://u@%2Frun%2Fpostgresql/app",
        ] { #expect(try address(good) == nil, "\(good)") }
        for bad in [
            "passfile=/etc/shadow", "service=x", "servicefile=/etc/x", "options='-c role=postgres'",
            "replication=database",
            "krbsrvname=x", "client_encoding=LATIN1", "requirepeer=root",
        ] {
            #expect(try address("host=db dbname=app " + bad)?.contains("database_url is invalid") == true, "\(bad)")
            let inURL = bad.replacing("'", with: "").replacing(" ", with: "%20").replacing(
                "=postgres", with: "%3Dpostgres")
            #expect(
                try address("postgresql://u@db/app?\(inURL)")?.contains("database_url is invalid") == true, "\(inURL)")
        }
    }

    // MARK: Slots

    private func planner() throws -> ProjectPlanner {
        let configuration = try Configuration.load(
            overrides: [
                .flag(Setting(\.databaseURL), "postgresql://hub@db.example:6543/own"), .flag(Setting(\.jwtSecret), "c"),
            ],
            surroundings: .only())
        return ProjectPlanner(configuration: configuration, keys: try configuration.tokenKeys(surroundings: .only()))
    }

    @Test func `two projects have one slot of a server never`() throws {
        let planner = try planner()
        let store = try ProjectStore(in: MemoryDirectory(), key: Secret("k"))
        func put(_ name: String, _ more: String = "", host: String = "db.example") throws -> Bool {
            let settings = databaseSettings.replacing("db.example", with: host) + more
            let text = tenantText(name).replacing(databaseSettings, with: settings)
            do {
                _ = try store.apply(try described(text), stageDefaults, at: stageTime, check: planner.checkSlot)
                return true
            } catch ProjectRefusal.mistakes(let mistakes) {
                #expect(String(decoding: mistakes.json, as: UTF8.self).contains("is another project's on that server"))
                return false
            }
        }
        #expect(try put("s-1"))
        // These names give the same slot, because of their letters or their first 63 bytes.
        #expect(try !put("s_1") && put("s_1", host: "other.example"))
        let long = String(repeating: "x", count: 60)
        #expect(try put(long + "a") && !put(long + "b"))
        #expect(try put(long + "b", #","slot_name":"mine""#) && !put("third", #","slot_name":"mine""#))
        // The slot belongs to the project of the settings, even if another database of the server is named.
        #expect(try !put("fourth", #","slot_name":"tidewire""#))
        // The same project is stored again. After its removal, another one may use the slot.
        #expect(try put("s-1"))
        #expect(try store.remove("s-1") != nil)
        #expect(try put("fourth", #","slot_name":"tidewire_s_1""#))
    }

    @Test func `a name is one, byte by byte`() throws {
        let store = try ProjectStore(in: MemoryDirectory(), key: Secret("k"))
        _ = try store.apply(try described(tenantText("app")), stageDefaults, at: stageTime)
        #expect(try store.remove("App") == nil && store.remove("app\u{301}") == nil && store.deleted.isEmpty)
        #expect(try store.remove("app")?.externalID == "app" && store.deleted == ["app"])
        _ = try store.apply(try described(tenantText("app")), stageDefaults, at: stageTime)
        #expect(store.deleted.isEmpty)
    }

    @Test func `deleted names are kept with the file`() throws {
        let directory = MemoryDirectory()
        let store = try ProjectStore(in: directory, key: Secret("k"))
        for name in ["a", "b", "c"] {
            _ = try store.apply(try described(tenantText(name)), stageDefaults, at: stageTime)
        }
        _ = try (store.remove("c"), store.remove("a"))
        let again = try ProjectStore(in: directory, key: Secret("k"))
        #expect(again.deleted == ["c", "a"] && again.all.map(\.externalID) == ["b"])
    }
}
