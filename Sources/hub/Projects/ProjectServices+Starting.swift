import Authorizing
import Catalog
import Delivery
import Gateway
import Ingest
import Judging
import Messages
import Postgres
import Replication
import Snapshots
import System

extension ProjectServices {
    /// Starts all services of a project. If one cannot be started, stops the others and throws.
    ///
    /// - Parameter policies: login with which PostgreSQL evaluates policies; nil for the hub's own login.
    init(
        _ replication: ReplicationSettings, policies: ConnectionTarget?, logDirectory: String, ingest: IngestService,
        janitor: MessagesJanitor, messagesHours: Int, keepsCatalogs: Bool
    ) throws {
        let (database, reachability, metrics) = (replication.target, replication.reachability, replication.metrics)
        var catalogSettings = CatalogService.Settings(target: database, publication: replication.publication)
        catalogSettings.coverage = replication.coverage
        catalogSettings.slot = replication.slot
        catalogSettings.definitions = { () throws(SystemError) in try DiskDirectory(logDirectory) }
        catalogSettings.reachability = reachability
        catalogSettings.metrics = metrics
        if keepsCatalogs {
            catalogSettings.recording = CatalogRecording(
                record: { ingest.record($0) }, end: { ingest.nextOffset },
                oldest: { ingest.oldestOffset(in: logDirectory) })
        }
        let starting = ServicesStarting()
        defer { starting.end() }
        let catalog = try CatalogService(catalogSettings)
        starting.note { catalog.stop() }
        let filterEvaluator = try FilterEvaluator(database, reachability, metrics)
        starting.note { filterEvaluator.stop() }
        var judging = PolicyEvaluator.Settings(database: database, policies: policies)
        judging.reachability = reachability
        judging.metrics = metrics
        let policyEvaluator = try PolicyEvaluator(judging)
        starting.note { policyEvaluator.stop() }
        let recall = try RecallService(logDirectory: logDirectory, metrics)
        starting.note { recall.stop() }
        var archived = MessageArchive.Settings(logDirectory: logDirectory, target: database)
        archived.hours = messagesHours
        archived.metrics = metrics
        let archive = try MessageArchive(
            archived, logEnd: { ingest.end }, followed: { ingest.messagesFollowed })
        starting.note { archive.stop() }
        var authorizing = ChannelAuthorizer.Settings(database: database, policies: policies)
        authorizing.missesPartition = { janitor.isMissed() }
        authorizing.reachability = reachability
        authorizing.metrics = metrics
        var snapshots = SnapshotService.Settings(
            database: database, policies: policies,
            openLog: { () throws(SystemError) in try DiskDirectory(logDirectory) }, logEnd: { ingest.end })
        snapshots.metrics = metrics
        let authorizer = try ChannelAuthorizer(authorizing)
        starting.note { authorizer.stop() }
        self.init(
            DeliveryAsking(
                catalog: catalog, filterEvaluator: filterEvaluator, policyEvaluator: policyEvaluator, recall: recall),
            authorizer: authorizer, archive: archive, snapshots: try SnapshotService(snapshots))
        starting.isComplete = true
    }
}

/// Services that have been started while others have not. If starting fails, these are stopped, so that repeated
/// attempts leave no threads running.
private final class ServicesStarting {
    private var stops: [() -> Void] = []
    var isComplete = false

    func note(_ stop: @escaping () -> Void) {
        assert(!isComplete, "no service starts after all have started")
        stops.append(stop)
    }

    func end() {
        if !isComplete { for stop in stops.reversed() { stop() } }
    }
}
