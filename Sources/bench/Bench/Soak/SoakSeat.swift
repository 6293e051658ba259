import Examples
import Foundation
import Synchronization
import TidewireClient

/// Person with an app, in the soak test: the app's client and model, and the person's actions.
@MainActor
class SoakSeat {
    let database: SoakDatabase
    let person: UUID
    let url: URL
    private let shared = Tidewire.MemoryStorage()
    private var launches = 0
    private let api = Switch()
    private(set) var client: Tidewire
    private(set) var writes: OfflineWrites
    private var running: [Task<Void, Never>] = []
    /// True while the app runs. The person acts only while the app runs.
    private(set) var isLaunched = false

    /// Name of the seat in the report.
    var name: String { "\(type(of: self)) \(person.text.prefix(8))" }

    init(_ database: SoakDatabase, _ person: UUID, port: UInt16) {
        self.database = database
        self.person = person
        url = URL(string: "http://127.0.0.1:\(port)") ?? URL(fileURLWithPath: "/")
        client = Tidewire(url: url, key: "")
        writes = OfflineWrites(storage: shared) { _ in .later }
    }

    // MARK: Life of the app

    /// Creates the app's model for the current launch.
    func makeModel() {}
    /// Returns the tasks that the app runs while it is launched.
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

    /// Kills the app without warning, as the system may do. The next launch has only the stored data.
    func killApp() {
        current?.die()
        isLaunched = false
        for task in running { task.cancel() }
        running = []
        client.signOut()
    }

    /// True if the app's API answers this person.
    var isOnline: Bool {
        get { api.isOn }
        set {
            api.isOn = newValue
            if newValue { writes.wake() }
        }
    }

    func renewToken(seconds: Int = 86_400) { client.signIn(token: database.token(person, seconds: seconds)) }

    /// True if the app has received all changes and has no unsent writes.
    var hasSettled: Bool { client.state == .live && writes.pendingWrites.isEmpty }

    // MARK: Actions and rows

    /// Performs a random action of the person in the app.
    func act(_ chance: inout VerifyChance) async throws {}
    /// Returns texts of the rows that the app shows.
    func shown() -> [String] { [] }
    /// Returns SQL for the rows that the person may SELECT, in the same form as `shown`.
    func expected() -> String { "" }
    /// Returns descriptions of faults in the app that do not depend on the database's rows.
    func faults() -> [String] { [] }

    /// Compares the app with the database. Returns texts about rows that only one of them has, and about other faults
    /// of the app.
    func differences() async throws -> [String] {
        let rows = try await database.ask(expected(), as: person)
        // There is no suspension between the two, so the app's rows cannot change in between.
        let (there, here) = (Set(rows.compactMap { $0[0] }), Set(shown()))
        return there.subtracting(here).sorted().map { "\(name) lacks \($0)" }
            + here.subtracting(there).sorted().map { "\(name) shows \($0)" } + faults().map { "\(name): \($0)" }
    }
}

/// Boolean that any thread can read and set. It is true at first.
final class Switch: Sendable {
    private let stored = Mutex(true)
    var isOn: Bool {
        get { stored.withLock { $0 } }
        set { stored.withLock { $0 = newValue } }
    }
}

/// Storage of one launch of an app. After the app is killed, nothing more is stored, even if a write was in progress.
final class LaunchStorage: TidewireStorage {
    private let shared: Tidewire.MemoryStorage
    private let isAlive = Mutex(true)

    init(_ shared: Tidewire.MemoryStorage) { self.shared = shared }

    /// Ends the launch: nothing more is stored.
    func die() { isAlive.withLock { $0 = false } }

    func load(_ name: String) -> Data? { shared.load(name) }

    func save(_ data: Data?, as name: String) {
        isAlive.withLock { if $0 { shared.save(data, as: name) } }
    }

    func removeAll() {
        isAlive.withLock { if $0 { shared.removeAll() } }
    }
}
