import Synchronization

/// Number that grows whenever definitions in a database are known to have changed.
///
/// A session of PostgreSQL keeps plans and compiled functions. It renews most of them when a table or a function
/// changes, but not all: a plan keeps the number of a column that it reads from a composite value, the oid of an
/// enumeration's label, and the types of a record's fields. After the change, such a session fails or answers by the
/// former definitions. So a session that was opened for an older version is replaced, and an error in it proves
/// nothing.
public final class DefinitionsVersion: Sendable {
    /// Version at one moment.
    public struct Reading: Sendable {
        fileprivate let version: DefinitionsVersion
        fileprivate let value: UInt64

        /// True if no change of definitions has become known since.
        public var isCurrent: Bool { version.value.load(ordering: .acquiring) == value }
    }

    private let value = Atomic<UInt64>(0)

    init() {}

    public var current: Reading { Reading(version: self, value: value.load(ordering: .acquiring)) }

    /// Makes earlier readings old. The caller does so before anybody can ask by the new definitions.
    public func advance() { value.add(1, ordering: .releasing) }
}
