import Authorizing
import Catalog
import Delivery
import Judging
import Messages

/// What a project has PostgreSQL and the log asked by: each with threads and connections of its own.
public struct ProjectServices: Sendable {
    let catalog: CatalogService
    let judge: Judge
    let policyJudge: PolicyJudge
    let recall: RecallService
    let authorizer: ChannelAuthorizer
    let archive: MessageArchive

    public init(
        catalog: CatalogService, judge: Judge, policyJudge: PolicyJudge, recall: RecallService,
        authorizer: ChannelAuthorizer, archive: MessageArchive
    ) {
        self.catalog = catalog
        self.judge = judge
        self.policyJudge = policyJudge
        self.recall = recall
        self.authorizer = authorizer
        self.archive = archive
    }

    /// On the thread that started them.
    public func stop() {
        catalog.stop()
        judge.stop()
        policyJudge.stop()
        recall.stop()
        authorizer.stop()
        archive.stop()
    }
}
