import Examples
import Foundation
import Synchronization
import TidewireClient

/// Somebody with an app: its client, its model, and what the person does with it.
@MainActor
class SoakSeat {
    let database: SoakDatabase
    let person: UUID
    let url: URL
    private let shared = MemoryStorage()
    private var launches = 0
    private let api = Switch()
    private(set) var client: Tidewire
    private(set) var writes: OfflineWrites
    private var running: [Task<Void, Never>] = []
    /// Nobody does anything with an app that does not run.
    private(set) var isLaunched = false

    /// By which it is named in what is found.
    var name: String { "\(type(of: self)) \(person.text.prefix(8))" }

    init(_ database: SoakDatabase, _ person: UUID, port: UInt16) {
        self.database = database
        self.person = person
        url = URL(string: "http://127.0.0.1:\(port)") ?? URL(fileURLWithPath: "/")
        client = Tidewire(url: url, key: "")
        writes = OfflineWrites(storage: shared) { _ in .later }
    }

    // MARK: The app's life

    /// A model for the client and the writes of now.
    func makeModel() {}
    /// What the app runs as long as it lives.
    func work() -> [@MainActor @Sendable () async -> Void] { [] }

    func launch() {
        launches += 1
        let storage = LaunchStorage(shared)
        current = storage
        client = Tidewire(
            url: url, key: database.token(person, seconds: 86_400), token: database.token(person, seconds: 86_400),
            storage: storage)
        writes = OfflineWrites(storage: storage) { [database, person, api] write in
            api.isOn ? await database.take(write, of: person) : .later
        }
        makeModel()
        isLaunched = true
        running = work().map { deed in Task { await deed() } }
    }

    private var current: LaunchStorage?

    /// As when the system kills it: what was kept is there at the next launch, and nothing else.
    func killApp() {
        current?.die()
        isLaunched = false
        for task in running { task.cancel() }
        running = []
        client.signOut()
    }

    /// What the person's API answers.
    var isOnline: Bool {
        get { api.isOn }
        set {
            api.isOn = newValue
            if newValue { writes.wake() }
        }
    }

    func renewToken(seconds: Int = 86_400) { client.signIn(token: database.token(person, seconds: seconds)) }

    var hasSettled: Bool { client.state == .live && writes.waiting.isEmpty }

    // MARK: What is done and shown

    func act(_ chance: inout VerifyChance) async throws {}
    /// The same words, of what is shown and of what the person may SELECT.
    func shown() -> [String] { [] }
    func expected() -> String { "" }
    /// What is wrong whatever the server has.
    func faults() -> [String] { [] }

    func differences() async throws -> [String] {
        let rows = try await database.ask(expected(), as: person)
        // In one go: nothing happens between the two.
        let (there, here) = (Set(rows.compactMap { $0[0] }), Set(shown()))
        return there.subtracting(here).sorted().map { "\(name) lacks \($0)" }
            + here.subtracting(there).sorted().map { "\(name) shows \($0)" } + faults().map { "\(name): \($0)" }
    }
}

/// Something that is on or off, for any thread.
final class Switch: Sendable {
    private let stored = Mutex(true)
    var isOn: Bool {
        get { stored.withLock { $0 } }
        set { stored.withLock { $0 = newValue } }
    }
}

/// What one launch of an app keeps: nothing any more once it was killed, whatever was on its way.
final class LaunchStorage: TidewireStorage {
    private let shared: MemoryStorage
    private let isAlive = Mutex(true)

    init(_ shared: MemoryStorage) { self.shared = shared }

    func die() { isAlive.withLock { $0 = false } }

    func load(_ name: String) -> Data? { shared.load(name) }

    func save(_ data: Data?, _ name: String) {
        isAlive.withLock { if $0 { shared.save(data, name) } }
    }

    func removeAll() {
        isAlive.withLock { if $0 { shared.removeAll() } }
    }
}
