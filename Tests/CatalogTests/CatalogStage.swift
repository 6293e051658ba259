import Diagnostics
import Embedded
import Postgres
import Protocol
import Synchronization
import System
import TestSupport
import Testing

@testable import Catalog

/// Database with a publication, and a catalog service for it.
final class CatalogStage {
    let database: TestDatabase
    let service: CatalogService
    /// Client role that only this stage uses, because roles belong to the whole cluster.
    let role: String
    /// Version of the definitions, which the service advances for the sessions that ask this database.
    let definitions: DefinitionsVersion
    private var isStopped = false

    /// Creates a stage. `foundation` adds the objects of a Supabase database. If `asOwner` is true, a superuser reads
    /// the catalog and may change the publications; otherwise the hub's documented login reads it.
    init(
        on cluster: PrivateCluster? = nil, foundation: Bool = false, _ sql: String = "", publication: String = "",
        role: String? = nil, asOwner: Bool = false, compiling: PolicyCompiling = .real
    ) throws {
        database = try TestDatabase(on: cluster)
        if foundation {
            for file in SQLFile.foundation where !file.name.contains("publication") { try database.run(file.text) }
        }
        self.role = role ?? "reader_" + database.name
        try database.run("CREATE ROLE \(self.role)")
        try database.run("GRANT USAGE ON SCHEMA public TO \(self.role)")
        if !sql.isEmpty { try database.run(sql.replacing("READER", with: self.role)) }
        try database.run("CREATE PUBLICATION supabase_realtime \(publication)")
        let logins = try database.documentedLogins(becoming: role == nil ? [self.role] : [])
        var settings = CatalogService.Settings(
            target: asOwner ? database.target : logins.hub, pollInterval: .milliseconds(20))
        settings.compiling = compiling
        definitions = settings.target.definitions
        service = try CatalogService(settings)
        service.addBindings(1)
    }

    deinit { stop() }

    func stop() {
        if !isStopped { service.stop() }
        isStopped = true
    }

    func run(_ sql: String) throws { try database.run(sql.replacing("READER", with: role)) }

    func request(
        _ table: String, filter: String? = nil, select: [String]? = nil, schema: String = "public",
        role: String? = nil, operations: RowOperations = .all
    ) -> BindingRequest {
        BindingRequest(
            role: role ?? self.role, schema: schema, table: table, filter: filter, select: select,
            operations: operations)
    }

    /// Asks the catalog's thread and waits for the answer.
    func resolve(_ requests: [BindingRequest]) -> [BindingOutcome] {
        let answer = Awaited<[BindingOutcome]>()
        service.resolve(requests) { outcomes, _ in answer.set(outcomes) }
        return answer.wait() ?? []
    }

    func resolve(_ request: BindingRequest) -> BindingOutcome { resolve([request]).first ?? .unavailable }

    func binding(_ request: BindingRequest, _ location: SourceLocation = #_sourceLocation) throws -> TableBinding {
        guard case .tables(let bindings) = resolve(request), let only = bindings.first, bindings.count == 1 else {
            Issue.record("not one table: \(resolve(request))", sourceLocation: location)
            throw NoBinding()
        }
        return only
    }

    func message(_ request: BindingRequest) -> String? {
        guard case .failed(let message) = resolve(request) else { return nil }
        return message.text
    }

    /// Returns a snapshot of the current catalog.
    func fresh() -> CatalogSnapshot? {
        let answer = Awaited<CatalogSnapshot?>()
        service.refresh { answer.set($0) }
        return answer.wait() ?? nil
    }

    struct NoBinding: Error {}
}
