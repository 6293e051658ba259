import Bytes
import System
import TestSupport
import Testing

@testable import Projects
@testable import Settings

@Suite(.within(minutes: 5)) struct ProjectStoreTests {
    private let directory = MemoryDirectory()

    private func open(_ key: String? = nil) throws(ProjectStoreError) -> ProjectStore {
        try ProjectStore(in: directory, key: key.map { Secret($0) })
    }

    /// Returns the reason for which the store does not open; nil if it opens.
    private func complaint(_ key: String? = nil) -> String? {
        do throws(ProjectStoreError) {
            _ = try open(key)
            return nil
        } catch {
            return error.description
        }
    }

    private func text(_ name: String = ProjectStore.fileName) throws -> String {
        let file = try directory.open(name, for: .reading)
        var writer = ByteWriter()
        _ = try writer.append(upTo: Int(file.size())) { room throws(SystemError) in try file.read(into: room, at: 0) }
        return writer.bytes.text
    }

    private func write(_ text: String, _ name: String = ProjectStore.fileName) throws {
        let bytes = Array(text.utf8)
        try directory.open(name, for: .creating).write(bytes.span.bytes, at: 0)
    }

    @discardableResult
    private func put(_ tenant: String, named name: String? = nil, into store: ProjectStore) throws -> ProjectRecord {
        try store.apply(described(tenant, named: name), stageDefaults, at: stageTime).record
    }

    @Test(arguments: [nil, "any text"])
    func `knows again what it stored, and shows no secret in the file`(key: String?) throws {
        let store = try open(key)
        #expect(store.all.isEmpty)
        let more = #","jwt_jwks":{"keys":[{"kty":"oct","kid":"a","k":"c2VjcmV0"}]},"feature_flags":{"x":true}"#
        let first = try put(tenantText("a", more), into: store)
        let second = try put(tenantText("b"), into: store)
        let again = try open(key)
        #expect(again.all == [first, second] && store.all == [first, second])
        #expect(again.record(named: "b") == second && again.record(named: "c") == nil)
        let file = try text()
        for secret in ["hunter2", "s3cret-of-thirty-two-bytes-or-more", "c2VjcmV0", "db.example", "6543", "hub\""] {
            #expect(!file.contains(secret), "\(secret)")
        }
        #expect(try directory.names().contains(ProjectKey.fileName) == (key == nil))
    }

    @Test func `makes no file before there is a project`() throws {
        _ = try open()
        #expect(try directory.names().isEmpty)
    }

    @Test func `seals the same for answers as long as it lives`() throws {
        let store = try open()
        let record = try put(tenantText(), into: store)
        #expect(record.told(store.seal) == record.told(try open().seal))
    }

    @Test func `changes, removes and says what was there before`() throws {
        let store = try open("k")
        let first = try put(tenantText("a"), into: store)
        let changed = try store.apply(described(#"{"suspend":true}"#, named: "a"), stageDefaults, at: stageTime + 5)
        #expect(changed.old == first && changed.record.isSuspended && changed.record.id == first.id)
        #expect(try store.remove("a")?.externalID == "a")
        #expect(try store.remove("a") == nil)
        #expect(try open("k").all.isEmpty)
    }

    @Test func `refuses what is no description and stores nothing of it`() throws {
        let store = try open("k")
        #expect(throws: ProjectRefusal.self) { try put("{}", into: store) }
        #expect(try directory.names().isEmpty && store.all.isEmpty)
    }

    @Test func `changes the settings' own project into a stored one`() throws {
        let store = try open("k")
        let configured = try recorded(tenantText("realtime-dev"))
        let applied = try store.apply(
            described(#"{"suspend":true}"#, named: "realtime-dev"), configured: configured, stageDefaults,
            at: stageTime)
        #expect(applied.old == configured && applied.record.id == configured.id && applied.record.isSuspended)
        #expect(store.all == [applied.record])
    }

    @Test func `keeps what it does not know`() throws {
        let store = try open("k")
        try put(
            tenantText("a", #","extensions":[\#(extensionText(databaseSettings + #","later":[1]"#))]"#), into: store)
        let known = try text()
        try write(
            known.replacing(#"{"version":1"#, with: #"{"from_later":{"a":1},"version":1"#)
                .replacing(#""external_id":"a""#, with: #""external_id":"a","also":[null]"#)
                .replacing(#"{"type":"#, with: #"{"beside":"x","type":"#))
        try put(#"{"suspend":true}"#, named: "a", into: try open("k"))
        let file = try text()
        for part in [#""from_later":{"a":1}"#, #""also":[null]"#, #""beside":"x""#, #""later":[1]"#] {
            #expect(file.contains(part), "\(part)")
        }
        #expect(try open("k").record(named: "a")?.isSuspended == true)
    }

    @Test func `says that the key is another one, and which setting has it`() throws {
        try put(tenantText("a"), into: try open("right"))
        let before = try text()
        #expect(
            complaint("wrong")
                == "memory/projects.json was encrypted with another key than project_key (TIDEWIRE_PROJECT_KEY) says; "
                + "set it to the key that the projects were stored with, or unset it if that is in projects.key")
        #expect(
            complaint()
                == "memory/projects.json cannot be decrypted: there is no memory/projects.key, and project_key "
                + "(TIDEWIRE_PROJECT_KEY) is not set")
        #expect(try text() == before)
        #expect(try directory.names() == [ProjectStore.fileName])
        #expect(complaint("right") == nil)
    }

    @Test func `says that its own key is another one or damaged`() throws {
        try put(tenantText("a"), into: try open())
        let key = try text(ProjectKey.fileName)
        try write(Base64URL.encode([UInt8](repeating: 7, count: 32).span), ProjectKey.fileName)
        #expect(complaint()?.contains("another key than the one in projects.key") == true)
        try write("short", ProjectKey.fileName)
        #expect(complaint()?.hasPrefix("memory/projects.key is damaged") == true)
        try write(key, ProjectKey.fileName)
        #expect(complaint() == nil)
    }

    @Test func `refuses a damaged file and leaves it as it is`() throws {
        try put(tenantText("a"), into: try open("k"))
        let whole = try text()
        for length in stride(from: 0, to: whole.utf8.count - 1, by: 7) {
            let damaged = String(whole.prefix(length))
            try write(damaged)
            #expect(complaint("k")?.contains("left as it is") == true, "\(length)")
            #expect(try text() == damaged)
        }
        try write(whole.replacing(#""version":1"#, with: #""version":2"#))
        #expect(complaint("k")?.contains("of a version that this program does not know") == true)
        try write(whole.replacing("t1:", with: "t2:"))
        #expect(complaint("k")?.contains("encrypted with another key") == true)
        try write(whole.replacing(#""jwt_secret":"t1:"#, with: #""jwt_secret":"t1:AA"#))
        #expect(complaint("k")?.contains("jwt_secret of a project cannot be decrypted") == true)
        try write(whole.replacing(#""suspend":false"#, with: #""suspend":7"#))
        #expect(complaint("k")?.contains("suspend of a project is not what it must be") == true)
    }

    @Test func `moves no secret from one project to another`() throws {
        let store = try open("k")
        try put(tenantText("a"), into: store)
        try put(tenantText("b"), into: store)
        let ids = store.all.map(\.id)
        try write(try text().replacing(ids[0], with: "x").replacing(ids[1], with: ids[0]))
        #expect(complaint("k")?.contains("cannot be decrypted") == true)
    }

    @Test func `keeps what was stored when the disk is full`() throws {
        let store = try open("k")
        let first = try put(tenantText("a"), into: store)
        directory.beFull(for: 1)
        #expect(throws: ProjectRefusal.self) { try put(tenantText("b"), into: store) }
        #expect(store.all == [first])
        #expect(try open("k").all == [first])
        try put(tenantText("b"), into: store)
        #expect(try open("k").all.count == 2)
    }

    @Test func `is readable by its owner alone`() throws {
        try withTemporaryDirectory { path in
            let store = try ProjectStore(in: DiskDirectory(path), key: nil)
            try put(tenantText("a"), into: store)
            for name in [ProjectStore.fileName, ProjectKey.fileName] {
                #expect(try accessMode(path + "/" + name) == 0o600)
            }
            #expect(try ProjectStore(in: DiskDirectory(path), key: nil).all == store.all)
        }
    }
}
