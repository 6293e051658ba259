import Bytes

/// Options of Tidewire that go beyond Supabase's protocol. A client must ask for them.
///
/// Existing client libraries drop unknown members of a join, each library in other places. Therefore an option can be
/// given in several places: parameters of the socket's address (`tidewire.moves=true`), `config.broadcast.tidewire`, a
/// binding's own `tidewire`, and `config.tidewire`. If several places give an option, the most specific place counts.
public struct ExtensionOptions: Sendable, Hashable {
    public enum Name: UInt8, Sendable, CaseIterable {
        /// Sends a delete for an update after which a binding no longer matches the row.
        case moves
        /// Tells the channel about data that limits or rights withhold from it.
        case limits
        /// Sends log positions from which the client can resume.
        case position
        /// Sends the existing rows before the changes.
        case snapshot

        var text: StaticString {
            switch self {
            case .moves: "moves"
            case .limits: "limits"
            case .position: "position"
            case .snapshot: "snapshot"
            }
        }

        fileprivate var bit: UInt8 { 1 << rawValue }
    }

    private var given: UInt8 = 0
    private var values: UInt8 = 0
    /// Unknown options, and options with an invalid value: the first `maximumUnknown` of them.
    public private(set) var unknown: [String] = []

    public static let maximumUnknown = 8
    private static let maximumShownCharacters = 64

    public init() {}

    /// Reads the options from those parameters of a socket's address that begin with `tidewire.`.
    public init(parameters: some Sequence<(name: String, value: String)>) {
        for (name, value) in parameters where name.hasPrefix("tidewire.") {
            let option = Name.allCases.first { "tidewire.\($0.text)" == name }
            switch (option, value.lowercased()) {
            case (let option?, "true"), (let option?, "1"): self[option] = true
            case (let option?, "false"), (let option?, "0"): self[option] = false
            default: note("\(name)=\(value)")
            }
        }
    }

    public subscript(name: Name) -> Bool? {
        get { given & name.bit == 0 ? nil : values & name.bit != 0 }
        set {
            given = newValue == nil ? given & ~name.bit : given | name.bit
            values = newValue == true ? values | name.bit : values & ~name.bit
        }
    }

    /// Returns these options. Options that are not set take their values from `wider`.
    public func over(_ wider: ExtensionOptions) -> ExtensionOptions {
        var both = self
        both.given |= wider.given
        both.values |= wider.values & ~given
        for name in wider.unknown { both.note(name) }
        assert(both.values & ~both.given == 0, "only options that are given have a value")
        return both
    }

    mutating func note(_ name: String) {
        guard unknown.count < Self.maximumUnknown, !unknown.contains(name) else { return }
        let shown = name.prefix(Self.maximumShownCharacters)
        unknown.append(shown.count < name.count ? shown + "…" : name)
        assert(unknown.count <= Self.maximumUnknown, "no more unknown options are kept than allowed")
    }

    /// Returns the message for a client that asked for an unknown option, or gave an option an invalid value.
    public func complaint(_ name: String) -> ClientText {
        let names = Name.allCases.map { "\($0.text)" }.joined(separator: ", ")
        return ClientText(
            .unknownOption, "Unknown option \(name): there are \(names) (true or false) and, in a join, resume")
    }
}

extension ExtensionOptions {
    /// Reads options from the next value if it is an object. Skips any other value.
    init(_ scanner: inout JSONScanner) throws(ByteError) {
        let token = try scanner.next()
        guard token == .beginObject else {
            try scanner.skip(token)
            return
        }
        while try scanner.next() == .name { try readMember(&scanner) }
    }

    /// Reads the value of the member whose name is the scanner's present token.
    mutating func readMember(_ scanner: inout JSONScanner) throws(ByteError) {
        let option = Name.allCases.first { scanner.equals($0.text) }
        let name = option == nil ? scanner.text : ""
        let token = try scanner.next()
        // Like all booleans of a join, an option may also be a string, in upper or lower case.
        let text = token == .string && scanner.tokenBytes.byteCount <= 5 ? scanner.text.lowercased() : ""
        switch (option, token) {
        case (let option?, .bool(let value)): self[option] = value
        case (let option?, .string) where text == "true" || text == "false": self[option] = text == "true"
        case (.some, .null): break
        case (let option, _):
            note("tidewire.\(option.map { "\($0.text)" } ?? name)")
            try scanner.skip(token)
        }
    }
}
