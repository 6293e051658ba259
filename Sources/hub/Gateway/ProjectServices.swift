import Authorizing
import Catalog
import Delivery
import Judging
import Messages
import Snapshots

/// Services of a project that ask PostgreSQL or the log. Each has its own threads and connections.
public struct ProjectServices: Sendable {
    let asking: DeliveryAsking
    let authorizer: any ChannelAuthorizing
    let archive: any MessageReplaying
    /// Service for snapshots; nil if the project has none.
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

    /// Stops the services. Only the thread that started them may call this.
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
