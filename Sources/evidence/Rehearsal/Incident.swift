import Embedded
import Postgres
import System

/// Environment in which an incident is played: a database, a hub, and a report of the steps.
public struct IncidentStage {
    /// Connection to the database as a superuser.
    public var connection: Connection
    /// Secret with which the hub verifies tokens.
    public var secret: String
    /// Returns the port on which the hub listens now. A restarted hub may have another one.
    public var port: () -> UInt16
    /// Stops the hub, calls `meanwhile`, and starts the hub again.
    public var deploy: (_ meanwhile: () throws -> Void) throws -> Void
    /// Waits until the log contains a record of the catalog that was made at `time` (microseconds since 1970) or later.
    public var awaitCatalog: (_ time: Int64) throws -> Void
    /// Reports a step as soon as it has happened.
    public var say: (IncidentStep) throws -> Void

    public init(
        _ connection: Connection, secret: String, port: @escaping () -> UInt16,
        deploy: @escaping (() throws -> Void) throws -> Void, awaitCatalog: @escaping (Int64) throws -> Void,
        say: @escaping (IncidentStep) throws -> Void
    ) {
        (self.connection, self.secret, self.port) = (connection, secret, port)
        (self.deploy, self.awaitCatalog, self.say) = (deploy, awaitCatalog, say)
    }
}

/// A step of a played incident, for its report. `time` is in microseconds since 1970.
public struct IncidentStep: Sendable {
    public var time: Int64
    /// Id of the transaction that the step committed; nil if it committed none.
    public var xid: String?
    public var text: String
}

/// A transaction that the script of an incident has committed: its name in the script, and its transaction id.
public struct IncidentTransaction: Sendable {
    public var name: String
    public var xid: UInt64
}

/// Incident in an office, played by a script. It fills a log about which the commands can then be asked.
///
/// Ana and Ben work on listing 5; Ana also works on listing 7. The policy shows notes on a listing to its colleagues.
/// Ana's phone and Ben's phone show listing 5. Ben's phone and laptop show toasts. Ben is removed from the listing,
/// loses his sockets and is added again. A migration contains a wrong policy and is undone, and the hub is restarted.
public final class Incident {
    private let stage: IncidentStage
    public private(set) var transactions: [IncidentTransaction] = []
    private let ana: Device
    private let ben: Device
    private let laptop: Device

    /// Statement of the migration with a wrong policy: it lets only the author read a note.
    public static let migration = #"ALTER POLICY "colleagues read notes" ON office.notes USING (author = auth.uid());"#
    /// Statement that restores the policy which `migration` changed.
    public static let remedy = """
        ALTER POLICY "colleagues read notes" ON office.notes
            USING (listing IN (SELECT c.listing FROM office.colleagues c WHERE c.person = auth.uid()));
        """
    /// Value of the masked column `seller_phone`. Commands show it only if the user unmasks the column.
    public static let phone = "+44 20 7946 0958"

    public init(_ stage: IncidentStage) {
        self.stage = stage
        let notes = #"{"event":"*","schema":"office","table":"notes","filter":"listing=eq.5"}"#
        let toasts = #"{"event":"INSERT","schema":"office","table":"toasts"}"#
        let listing = Device.Channel(topic: "realtime:listing-5", bindings: notes)
        let shown = Device.Channel(topic: "realtime:toasts", bindings: toasts)
        ana = Device("ana's phone", of: Self.ana, .goesOn, [listing])
        ben = Device("ben's phone", of: Self.ben, .goesOn, [listing, shown])
        laptop = Device("ben's laptop", of: Self.ben, .beginsAnew, [shown])
    }

    public static let ana = DemoDatabase.people[0]
    public static let ben = DemoDatabase.people[1]

    /// Changes that the devices received: first all changes of one device, in order, then those of the next.
    public var heard: [Heard] { [ana, ben, laptop].flatMap(\.heard) }

    /// Plays the whole incident, from the first connection to the last.
    public func play() throws {
        try connectDevices()
        try removeColleague()
        try disconnectDevices()
        try aMigrationGoesWrong()
        try theHubIsRestarted()
        try everybodyLeaves()
    }

    // MARK: The acts

    private func connectDevices() throws {
        try commit(
            "colleagues",
            """
            INSERT INTO office.colleagues VALUES (5, '\(Self.ana.id)'), (7, '\(Self.ana.id)'), (5, '\(Self.ben.id)')
            """, "ana works on listings 5 and 7, ben on listing 5")
        try come(ana, "ana's phone joins realtime:listing-5: notes where listing=eq.5")
        try come(ben, "ben's phone joins realtime:listing-5 with the same filter, and realtime:toasts")
        try come(laptop, "ben's laptop joins realtime:toasts")
        try stage.awaitCatalog(0)
    }

    private func removeColleague() throws {
        try commit("note 1", note(1, 5, by: Self.ana, "call back"), "ana writes note 1 on listing 5")
        try told([ana, ben], "INSERT", "notes", 1)
        try commit("note 2", note(2, 7, by: Self.ana, "viewing at noon"), "ana writes note 2, on listing 7")
        try commit(
            "ben removed", "DELETE FROM office.colleagues WHERE listing = 5 AND person = '\(Self.ben.id)'",
            "ben is taken off listing 5")
        try commit(
            "note 1 changed", "UPDATE office.notes SET body = 'called: 420 000' WHERE id = 1", "ana changes note 1")
        try told([ana], "UPDATE", "notes", 1)
    }

    private func disconnectDevices() throws {
        for device in [ben, laptop] { try device.catchUp() }
        ben.cut()
        laptop.cut()
        try say("ben's phone and laptop lose their sockets")
        try commit("note 3", note(3, 5, by: Self.ana, "offer rises"), "ana writes note 3 on listing 5")
        try told([ana], "INSERT", "notes", 3)
        try commit(
            "ben back",
            """
            INSERT INTO office.colleagues VALUES (5, '\(Self.ben.id)');
            INSERT INTO office.toasts VALUES (1, '\(Self.ben.id)', 'You work on listing 5 again')
            """, "ben is put on listing 5 again, and a toast says so")
        try come(ben, "ben's phone reconnects and resumes where it was")
        try told([ben], "INSERT", "toasts", 1)
        try come(laptop, "ben's laptop opens its page again")
    }

    private func aMigrationGoesWrong() throws {
        try migrate("migration", Self.migration, "a migration lets only the author of a note read it")
        try commit("note 4", note(4, 5, by: Self.ben, "price agreed"), "ben writes note 4 on listing 5")
        try told([ben], "INSERT", "notes", 4)
        try migrate("remedy", Self.remedy, "the migration is undone")
    }

    private func theHubIsRestarted() throws {
        let devices = [ana, ben, laptop]
        for device in devices { try device.catchUp() }
        // The hub waits for its clients while it shuts down, so the devices must handle the end of their sockets
        // meanwhile.
        let watch = try BackgroundThread("devices") { for device in devices { device.awaitEnd() } }
        try say("a deployment stops the hub")
        let ended = Clock.unixMicroseconds()
        try stage.deploy {
            watch.join()
            try commit("note 5", note(5, 5, by: Self.ana, "papers sent"), "ana writes note 5 on listing 5")
        }
        try say("the hub runs again")
        try come(ana, "ana's phone reconnects and resumes where it was")
        try come(ben, "ben's phone reconnects and resumes where it was")
        try come(laptop, "ben's laptop opens its page again")
        // With an older record of the catalog, the log could not show by which policies the hub decided.
        try stage.awaitCatalog(ended)
        try told([ana, ben], "INSERT", "notes", 5)
        try commit("note 1 deleted", "DELETE FROM office.notes WHERE id = 1", "ana deletes note 1")
        try told([ana, ben], "DELETE", "notes", 1)
    }

    private func everybodyLeaves() throws {
        for device in [ana, ben, laptop] {
            try device.catchUp()
            try device.leave()
        }
        try say("all devices leave")
    }

    // MARK: Helpers

    /// Reports a step of the incident that has just happened.
    private func say(_ text: String, xid: String? = nil) throws {
        try stage.say(IncidentStep(time: Clock.unixMicroseconds(), xid: xid, text: text))
    }

    /// Connects a device to the hub, joins its channels, and reports it with this text.
    private func come(_ device: Device, _ text: String) throws {
        try device.come(to: stage.port(), secret: stage.secret)
        try say(text)
    }

    /// Commits SQL in one transaction, records the transaction under this name, and reports it with this text.
    private func commit(_ name: String, _ sql: String, _ text: String) throws {
        try stage.connection.execute("BEGIN")
        try stage.connection.execute(sql)
        let xid = try stage.connection.query("SELECT pg_current_xact_id()::text").first?.first.flatMap { $0 } ?? ""
        try stage.connection.execute("COMMIT")
        transactions.append(IncidentTransaction(name: name, xid: UInt64(xid) ?? 0))
        try say(text, xid: xid)
    }

    /// Commits a migration and waits until the log has a record of the new catalog. Otherwise a catalog that lasts less
    /// than a second might not be recorded.
    private func migrate(_ name: String, _ sql: String, _ text: String) throws {
        let before = Clock.unixMicroseconds()
        try commit(name, sql, text)
        try stage.awaitCatalog(before)
    }

    /// Waits until all these devices have received a change, and reports it.
    private func told(_ devices: [Device], _ operation: String, _ table: String, _ row: Int) throws {
        for device in devices { try device.awaitChange(operation, table, row) }
        let names = devices.map(\.name).joined(separator: ", ")
        try say("    told: \(names)")
    }

    private func note(_ id: Int, _ listing: Int, by author: DemoDatabase.Person, _ body: String) -> String {
        "INSERT INTO office.notes VALUES (\(id), \(listing), '\(author.id)', '\(body)', '\(Self.phone)')"
    }
}
