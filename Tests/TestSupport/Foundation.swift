import Embedded
import Synchronization

private let applying = Mutex(())

extension TestDatabase {
    /// What `tidewire db apply` makes. Roles are the whole cluster's: two that make them at once would meet.
    public func applyFoundation() throws {
        try applying.withLock { _ in
            for file in SQLFile.foundation { try file.apply(connection) }
        }
    }
}
