import Authorizing
import Catalog
import Delivery
import Judging
import Messages
import Snapshots

/// What a project has PostgreSQL and the log asked by: each with threads and connections of its own.
public struct ProjectServices: Sendable {
    let asking: DeliveryAsking
    let authorizer: any ChannelAuthorizing
    let archive: any MessageReplaying
    /// Nil where there are none.
    let snapshots: (any SnapshotTaking)?

    public init(
        _ asking: DeliveryAsking, authorizer: any ChannelAuthorizing, archive: any MessageReplaying,
        snapshots: (any SnapshotTaking)? = nil
    ) {
        self.asking = asking
        self.authorizer = authorizer
        self.archive = archive
        self.snapshots = snapshots
    }

    /// On the thread that started them.
    public func stop() {
        asking.catalog.stop()
        asking.filterEvaluator.stop()
        asking.policyEvaluator.stop()
        asking.recall.stop()
        authorizer.stop()
        archive.stop()
        snapshots?.stop()
    }
}
