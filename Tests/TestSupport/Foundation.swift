import Embedded
import Synchronization

private let applying = Mutex(())

extension TestDatabase {
    /// Applies the same files as `tidewire db apply`. Only one caller runs at a time: two callers that create the
    /// cluster's roles would collide.
    public func applyFoundation() throws {
        try applying.withLock { _ in
            for file in SQLFile.foundation { try file.apply(connection) }
        }
    }

    /// Creates the functions that policies call, as `tidewire db apply` does, and lets roles of the test call them.
    public func applyAuth(to roles: [String] = []) throws {
        try apply("020_")
        if !roles.isEmpty { try run("GRANT USAGE ON SCHEMA auth TO \(roles.joined(separator: ", "))") }
    }

    /// Creates the two publications if they are missing, as `tidewire db apply` does.
    public func applyPublications() throws { try apply("030_") }

    private func apply(_ prefix: String) throws {
        for file in SQLFile.all where file.name.hasPrefix(prefix) { try file.apply(connection) }
    }
}
