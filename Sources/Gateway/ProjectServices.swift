import Authorizing
import Catalog
import Delivery
import Judging
import Messages

/// What a project has PostgreSQL and the log asked by: each with threads and connections of its own.
public struct ProjectServices: Sendable {
    let asking: DeliveryAsking
    let authorizer: any ChannelAuthorizing
    let archive: any MessageReplaying

    public init(
        _ asking: DeliveryAsking, authorizer: any ChannelAuthorizing, archive: any MessageReplaying
    ) {
        self.asking = asking
        self.authorizer = authorizer
        self.archive = archive
    }

    /// On the thread that started them.
    public func stop() {
        asking.catalog.stop()
        asking.filterEvaluator.stop()
        asking.policyEvaluator.stop()
        asking.recall.stop()
        authorizer.stop()
        archive.stop()
    }
}
