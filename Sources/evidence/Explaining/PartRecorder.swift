import Catalog
import Policy
import Synchronization

/// Notes the parts of each policy when the catalog compiles it, for it knows then what names mean.
final class PartRecorder: Sendable {
    private struct Key: Hashable {
        var table: UInt32
        var text: String
    }

    private static let limit = 120
    private let parts = Mutex<[Key: [PolicyPart]]>([:])

    var compiling: PolicyCompiling {
        var compiling = PolicyCompiling.real
        let compile = compiling.compile
        compiling.compile = { [self] catalog, text, table in
            let found = PolicyCompiler(catalog).parts(of: text, on: table, limit: PartRecorder.limit)
            parts.withLock { $0[Key(table: table.oid, text: text)] = found }
            return compile(catalog, text, table)
        }
        return compiling
    }

    /// Whether nothing of the policy's text is left to PostgreSQL.
    func isDecided(_ text: String, on table: UInt32) -> Bool {
        let found = parts.withLock { $0[Key(table: table, text: text)] }
        return found?.first.map { part in !part.term.contains { $0 == .undecided } } ?? false
    }

    /// Tables whose rows would make members, if they were followed.
    func membershipTables(of text: String, on table: UInt32) -> Set<UInt32> {
        var tables: Set<UInt32> = []
        let found = parts.withLock { $0[Key(table: table, text: text)] }
        found?.first?.term.visit { if case .member(let membership, _) = $0 { tables.insert(membership.table) } }
        return tables
    }

    /// The smallest parts of a policy that are left to PostgreSQL, as they are written.
    func undecided(of policy: PolicyBinding.Part, on table: UInt32) -> [String] {
        let parts = parts(of: policy, on: table)
        return parts.indices.filter { index in
            let inside = parts[(index + 1)...].prefix { $0.depth > parts[index].depth }
            return parts[index].isUndecided && !inside.contains(where: \.isUndecided)
        }.map { parts[$0].text }
    }

    /// The policy's parts, the policy itself first, as far as they are decided in process: what the binding leaves to
    /// PostgreSQL is left to it in its parts as well.
    func parts(of policy: PolicyBinding.Part, on table: UInt32) -> [PolicyPart] {
        var found = parts.withLock { $0[Key(table: table, text: policy.text)] } ?? []
        if found.isEmpty {
            found = [
                PolicyPart(depth: 0, text: policy.text, sql: policy.text, isCondition: true, term: .undecided)
            ]
        }
        for index in found.indices {
            found[index].term = policy.term == .undecided ? .undecided : found[index].term.narrowed(as: policy.term)
        }
        found[0].term = policy.term
        return found
    }
}

extension Term {
    /// With its memberships as they are in the whole, policies of their tables included.
    fileprivate func narrowed(as whole: Term) -> Term {
        var known: [Membership] = []
        whole.visit { if case .member(let membership, _) = $0 { known.append(membership) } }
        return replacingMembers { membership, key in
            let found = known.first {
                $0.table == membership.table && $0.keySlot == membership.keySlot && $0.reader == membership.reader
                    && $0.fillSQL == membership.fillSQL
            }
            return found.map { .member($0, key: key) } ?? .undecided
        }
    }
}

extension PolicyPart {
    fileprivate var isUndecided: Bool { term.contains { $0 == .undecided } }
}
