import Authorizing
import Catalog
import Ingest
import Judging
import Messages
import Postgres
import Replication
import System

/// What a project has PostgreSQL and the log asked by: each with threads and connections of its own.
struct ProjectServices: Sendable {
    let catalog: CatalogService
    let judge: Judge
    let policyJudge: PolicyJudge
    let recall: RecallService
    let authorizer: ChannelAuthorizer
    let archive: MessageArchive

    /// `policies` is the login under which PostgreSQL is asked what policies say; nil is the hub's own.
    init(
        database: ConnectionTarget, policies: ConnectionTarget?, publication: String, coverage: StreamCoverage,
        reachability: Reachability, logDirectory: String, ingest: IngestService, janitor: MessagesJanitor,
        messagesHours: Int
    ) throws {
        var catalogSettings = CatalogService.Settings(target: database, publication: publication)
        catalogSettings.coverage = coverage
        catalogSettings.reachability = reachability
        catalog = try CatalogService(catalogSettings)
        judge = try Judge(database, reachability)
        var judging = PolicyJudge.Settings(database: database, policies: policies)
        judging.reachability = reachability
        policyJudge = try PolicyJudge(judging)
        recall = try RecallService(logDirectory: logDirectory)
        var archived = MessageArchive.Settings(logDirectory: logDirectory, target: database)
        archived.hours = messagesHours
        archive = try MessageArchive(
            archived, logEnd: { ingest.end }, followed: { ingest.messagesFollowed })
        var authorizing = ChannelAuthorizer.Settings(database: database, policies: policies)
        authorizing.missesPartition = { janitor.isMissed() }
        authorizer = try ChannelAuthorizer(authorizing)
    }

    /// On the thread that started them.
    func stop() {
        catalog.stop()
        judge.stop()
        policyJudge.stop()
        recall.stop()
        authorizer.stop()
        archive.stop()
    }
}
