import Auth
import Catalog
import Diagnostics
import Gateway
import Ingest
import Postgres
import Replication
import Settings
import System

/// Everything that is needed to start a project: its database, its limits, and where its log is.
struct ProjectPlan: Sendable {
    var name: String
    var ingest: IngestService.Settings
    var policies: ConnectionTarget?
    var settings: ProjectSettings
    var verifier: TokenVerifier
    /// True if the log also records presence: who joined, changed and left.
    var keepsPresenceTimeline = false
    /// Scope of the events about channels that the log records, from none to every delivery.
    var ledger = LedgerScope.nothing
    /// Names of the claims that the ledger records.
    var ledgerClaims: Set<String> = []
    /// Hours for which rows of `realtime.messages` are kept.
    var messagesHours = Int(Limits.messagesRetentionHours)
    /// Clients that the hub resumes without being asked, after their sockets broke: those with a session, only those
    /// with a `client_id`, or none.
    var catchUp = CatchUpScope.sessions
    /// Maximum time after a socket broke for which the hub still resumes its client without being asked.
    var catchUpGrace = Limits.resumeGrace

    var logDirectory: String { IngestService.Settings.logDirectory(ingest.dataDirectory) }
}

/// Function that creates what a database lacks for the hub, and logs what it created and could not create. It throws if
/// the database cannot be reached.
public typealias DatabasePreparing = @Sendable (ConnectionTarget) throws(PostgresError) -> Void

/// Planner that makes plans for the project of the settings and for stored projects.
public struct ProjectPlanner: Sendable {
    let configuration: Configuration
    var keys: TokenKeys
    let preparation: DatabasePreparing?
    let maskRulesCheck: MaskRulesCheck?
    /// Cluster that the hub is a node of; nil for a hub on its own.
    let cluster: ClusterConfiguration?

    public init(
        configuration: Configuration, keys: TokenKeys, cluster: ClusterConfiguration? = nil,
        preparation: DatabasePreparing? = nil, maskRulesCheck: MaskRulesCheck? = nil
    ) {
        self.configuration = configuration
        self.keys = keys
        self.cluster = cluster
        self.preparation = preparation
        self.maskRulesCheck = maskRulesCheck
    }

    /// Plan of the project that the settings describe; nil if they name no database.
    var configured: ProjectPlan? {
        configuration.databaseURL.map { plan(ConnectionTarget($0.revealed)) }
    }

    /// Returns the plan of a stored project; nil if its record names no database. A stored project with the name of the
    /// settings' project uses the settings' log and slot.
    func stored(_ record: ProjectRecord) -> ProjectPlan? {
        guard let database = record.database else { return nil }
        let isConfigured = record.externalID == configuration.projectName
        var plan = plan(ConnectionTarget(database.revealed))
        plan.name = record.externalID
        if !isConfigured { move(&plan, for: record) }
        if let publication = record.publication { plan.ingest.replication.publication = publication }
        plan.settings.limits = record.limits(configuration.projectDefaults)
        if let bytes = record.maximumRecordBytes {
            plan.settings.maximumBodyBytes = Setting(\.recordBytes).type.nearest(to: bytes)
        }
        let hasKeysOfSettings =
            isConfigured && record.keySet == nil && record.jwtSecret == configuration.jwtSecret
        if !hasKeysOfSettings {
            let (verifier, notes) = record.verifier(configuration.claimExpectations)
            for note in notes {
                Log.shared.warning("the hub does not use a key", [.reason(note), .project(record.externalID)])
            }
            plan.verifier = verifier
        }
        assert(
            isConfigured == (plan.ingest.dataDirectory == configuration.dataDirectory),
            "only the project of the settings has its log in the data directory itself")
        return plan
    }

    /// Returns the replication slot that the project reads, and the slot's database. Nil if the project has no
    /// database.
    func place(of record: ProjectRecord) -> SlotPlace? {
        let isConfigured = record.externalID == configuration.projectName
        return record.database.map {
            SlotPlace(slot: isConfigured ? configuration.slot : slot(of: record), ConnectionTarget($0.revealed))
        }
    }

    /// Throws if another project uses the slot, because two projects on one slot would take changes from each other. A
    /// project may keep a slot that its stored record already has.
    func checkSlot(
        of new: ProjectRecord, replacing old: ProjectRecord?, beside others: [ProjectRecord]
    ) throws(ProjectMistakes) {
        guard let place = place(of: new), old.flatMap(self.place)?.isSame(as: place) != true else { return }
        let isConfigured = new.externalID == configuration.projectName
        let hasOwn = !isConfigured && !others.contains { $0.externalID == configuration.projectName }
        let taken = others.compactMap(self.place) + (hasOwn ? [configuredPlace].compactMap(\.self) : [])
        guard taken.contains(where: place.isSame) else { return }
        let mistake = ProjectMistakes([("settings", "slot_name \(place.slot) is another project's on that server")])
        var mistakes = ProjectMistakes()
        mistakes.add("extensions", each: [mistake])
        throw mistakes
    }

    /// Replication slot of the project that the settings describe, with its database; nil if they name no database.
    var configuredPlace: SlotPlace? {
        configuration.databaseURL.map { SlotPlace(slot: configuration.slot, ConnectionTarget($0.revealed)) }
    }

    func directory(of record: ProjectRecord) -> String { ProjectPlace.directory(of: record, configuration) }

    private func slot(of record: ProjectRecord) -> String {
        record.slot ?? Self.slot(record.externalID, configuration.slot)
    }

    private func move(_ plan: inout ProjectPlan, for record: ProjectRecord) {
        assert(record.externalID != configuration.projectName, "the project of the settings keeps its log and slot")
        plan.ingest.dataDirectory = ProjectPlace.directory(of: record, configuration)
        plan.ingest.replication.slot = slot(of: record)
        // The database was prepared when the project was created.
        plan.ingest.replication.preparation = nil
        plan.ingest.replication.metrics = ProjectMetrics(of: record.externalID, tables: configuration.measuredTables)
        plan.policies = nil
        plan.ingest.cluster = membership(of: record.externalID)
    }

    /// Returns the part that a project's log takes in the cluster; nil for a hub on its own. Each project has a stream of
    /// its own.
    private func membership(of project: String) -> ClusterSettings? {
        cluster.map { ClusterSettings($0, project: project) }
    }

    /// Returns a valid name for a replication slot, made from a project's name: letters, digits and underscores, at
    /// most 63 characters.
    private static func slot(_ name: String, _ prefix: String) -> String {
        let plain = name.lowercased().utf8.map { byte in
            (48...57).contains(byte) || (97...122).contains(byte) ? byte : UInt8(ascii: "_")
        }
        return String((prefix + "_" + String(decoding: plain, as: UTF8.self)).prefix(63))
    }

    private var roleRules: RoleRules {
        RoleRules(
            allowed: configuration.allowedRoles.map { RoleRules.names($0) },
            bypassing: RoleRules.names(configuration.bypassRoles))
    }

    private func plan(_ target: ConnectionTarget) -> ProjectPlan {
        var settings = ProjectSettings(limits: configuration.projectLimits)
        settings.maximumBodyBytes = configuration.recordBytes
        settings.deletesAreStrict = configuration.deletesAreStrict
        settings.replaysPublicChannels = configuration.replaysPublicChannels
        settings.maximumReplay = configuration.replayLimit
        settings.positionInterval = configuration.positionInterval
        settings.roles = roleRules
        return ProjectPlan(
            name: configuration.projectName, ingest: ingest(target),
            policies: configuration.policyDatabaseURL.map { ConnectionTarget($0.revealed) }, settings: settings,
            verifier: keys.clients, keepsPresenceTimeline: configuration.keepsPresenceTimeline,
            ledger: configuration.ledger, ledgerClaims: RoleRules.names(configuration.ledgerClaims),
            messagesHours: configuration.messagesHours,
            catchUp: configuration.catchUp, catchUpGrace: configuration.catchUpGrace)
    }

    private func ingest(_ target: ConnectionTarget) -> IngestService.Settings {
        var replication = ReplicationSettings(
            target: target, publication: configuration.publication, slot: configuration.slot,
            mayCreateSlot: configuration.createsSlot, mayCreatePublication: configuration.createsPublication,
            streaming: configuration.streamsTransactionsInProgress, coverage: StreamCoverage())
        replication.metrics = ProjectMetrics(tables: configuration.measuredTables)
        if configuration.preparesDatabase {
            replication.preparation = preparation.map { DatabasePreparation($0) }
        }
        var settings = IngestService.Settings(
            replication: replication, dataDirectory: configuration.dataDirectory,
            segmentBytes: configuration.segmentBytes, retentionAge: configuration.retentionAge,
            retentionBytes: configuration.retentionBytes.map { Int64($0) }, scrubRate: configuration.scrubRate,
            maskRules: MaskRulesSource(path: configuration.maskRules, check: maskRulesCheck))
        settings.cluster = membership(of: configuration.projectName)
        return settings
    }
}
