import Change

/// A publication as the log has followed it: which one of its name, and since when each table is in it.
///
/// PostgreSQL decodes a change by the catalog of its moment: what was committed while a publication or a table of it was
/// away never comes, and no error says so. A publication that is made again has another number, and so has the catalog's row
/// of a table that is put in again.
public struct PublishedTables: Sendable, Equatable {
    public var number: UInt32
    /// A table or schema, and the row that puts it in. Those that are not in any more stay: they may come back.
    public var members: [UInt32: UInt32]

    public init(number: UInt32, members: [UInt32: UInt32]) {
        self.number = number
        self.members = members
    }

    /// What may be missing, where it is as it says by now; nil where nothing is.
    func breach(by now: PublishedTables) -> Gap.Reason? {
        number != now.number ? .publicationRecreated : nil
    }

    /// What is to be remembered: all that is there, and of what is not as much as there is room for.
    func remembering(_ before: PublishedTables?, atMost maximum: Int) -> PublishedTables {
        guard let before, before.number == number else { return self }
        var all = self
        for (member, row) in before.members.sorted(by: { $0.key < $1.key })
        where all.members[member] == nil && all.members.count < maximum {
            all.members[member] = row
        }
        return all
    }
}
