import Synchronization

/// Number that increases when the hub learns that definitions in a database have changed.
///
/// A session of PostgreSQL keeps plans and compiled functions. It renews most of them when a table or a function
/// changes, but not all. For example, a plan keeps column numbers of composite values, OIDs of enumeration labels, and
/// the types of a record's fields. After a change, such a session may fail or answer by the old definitions. So the hub
/// replaces a session that was opened for an older version, and draws no conclusion from an error in it.
public final class DefinitionsVersion: Sendable {
    /// Version at one time.
    public struct Reading: Sendable {
        fileprivate let version: DefinitionsVersion
        fileprivate let value: UInt64

        /// True if no change of definitions has become known since this reading.
        public var isCurrent: Bool { version.value.load(ordering: .acquiring) == value }
    }

    private let value = Atomic<UInt64>(0)

    init() {}

    public var current: Reading { Reading(version: self, value: value.load(ordering: .acquiring)) }

    /// Makes all earlier readings outdated. The caller calls this before any thread can use the new definitions.
    public func advance() { value.add(1, ordering: .releasing) }
}
