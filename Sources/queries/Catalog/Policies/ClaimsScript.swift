import Policy
import Postgres

/// Something that PostgreSQL is asked under many claims of one role, one after the other: as a function that loops over
/// the claims, or, where no function can be made, as a statement for each.
///
/// The claims and the role are set again for each, and whatever a policy's functions do is undone before the next:
/// every step is a subtransaction that is rolled back.
public struct ClaimsScript: Sendable, Hashable {
    public enum Shape: Sendable, Hashable {
        /// One row for each claims. Where it fails with many elements in the inputs, each element is tried by itself.
        case whole
        /// Any number of rows.
        case rows
    }

    /// Nil stays who the connection is.
    public let role: String?
    public let shape: Shape
    /// Arrays of texts.
    public let inputCount: Int
    /// Texts.
    public let outputCount: Int
    /// What is made of the inputs once and is the same under all claims, as an expression.
    private let held: String?
    /// With the inputs as the function's variables …
    private let inFunction: String
    /// … restricted to one element …
    private let inFunctionByElement: String
    /// … and as parameters.
    public let asStatement: String

    private init(
        as role: String?, _ shape: Shape, inputs: Int, outputs: Int, held: String? = nil, inFunction: String? = nil,
        _ sql: (_ input: (Int) -> String) -> String
    ) {
        self.role = role
        self.shape = shape
        inputCount = inputs
        outputCount = outputs
        self.held = held
        self.inFunction = inFunction ?? sql(ClaimsScript.variable)
        inFunctionByElement = sql { "\(ClaimsScript.variable($0))[\"tw$element\":\"tw$element\"]" }
        asStatement = sql { "CAST($\($0 + 1) AS pg_catalog.text[])" }
    }

    private static func variable(_ input: Int) -> String { "\"tw$input\(input)\"" }

    public static func == (left: ClaimsScript, right: ClaimsScript) -> Bool {
        left.role == right.role && left.shape == right.shape && left.asStatement == right.asStatement
    }

    public func hash(into hasher: inout Hasher) {
        hasher.combine(role)
        hasher.combine(asStatement)
    }
}

// MARK: What is asked

extension ClaimsScript {
    /// For each row, in order, whether it may be read: `1` or `0`, without the noughts at the end; NULL when none may.
    ///
    /// The rows are made of their texts once for all claims.
    init(judging sql: String, _ row: JudgedRow, as role: String) {
        func answer(_ rows: String) -> String {
            """
            SELECT NULLIF(pg_catalog.rtrim(pg_catalog.string_agg("tw$may", ''), '0'), '')
            FROM (SELECT CASE WHEN (\(sql)
            ) THEN '1' ELSE '0' END FROM \(row.source(rows))) AS "tw$rows" ("tw$may")
            """
        }
        self.init(
            as: role, .whole, inputs: row.columns.count, outputs: 1, held: row.array(ClaimsScript.variable),
            inFunction: answer("\"tw$held\".\"tw$made\"")
        ) { input in
            answer(row.array(input))
        }
    }

    /// Each term's text.
    public init(evaluating terms: [AskedTerm], as role: String) {
        self.init(as: role, .whole, inputs: 0, outputs: terms.count) { _ in
            "SELECT " + terms.map(ClaimsScript.text).joined(separator: ", ")
        }
    }

    /// Moments are written as the replication stream writes them, in UTC; the session's zone is the client's.
    private static func text(_ term: AskedTerm) -> String {
        guard term.type.oid == momentType else { return "CAST((\(term.sql)\n) AS pg_catalog.text)" }
        return """
            (SELECT CASE WHEN NOT pg_catalog.isfinite("tw$moment") THEN CAST("tw$moment" AS pg_catalog.text)
                ELSE pg_catalog.regexp_replace(
                    CAST(pg_catalog.timezone('UTC', "tw$moment") AS pg_catalog.text), '( BC)?$', '+00\\1') END
            FROM (SELECT CAST((\(term.sql)
            ) AS timestamp with time zone)) AS "tw$source" ("tw$moment"))
            """
    }

    /// `timestamptz`.
    private static let momentType: UInt32 = 1184

    /// Keys and how often each is there.
    public init(filling sql: String, as role: String?, limit: Int) {
        self.init(as: role, .rows, inputs: 0, outputs: 2) { _ in
            """
            SELECT "tw$key", CAST(pg_catalog.count(*) AS pg_catalog.text) FROM (
                SELECT CAST("tw$of" AS pg_catalog.text) COLLATE pg_catalog."C" FROM (\(sql)
                ) AS "tw$source" ("tw$of")) AS "tw$keys" ("tw$key")
            GROUP BY "tw$key" LIMIT \(limit)
            """
        }
    }
}

// MARK: The function

extension ClaimsScript {
    /// Rows: the claims' number from 1, the element's number where elements were tried by themselves, the error's code
    /// or NULL, and the outputs.
    public func function(named name: String) -> String {
        let inputs = (0..<inputCount).map { ", \(ClaimsScript.variable($0)) pg_catalog.text[]" }.joined()
        let outputs = (0..<outputCount).map { ", \"tw$output\($0)\" pg_catalog.text" }.joined()
        let body = """
            #variable_conflict use_column
            DECLARE
                "tw$one" pg_catalog.text;
                "tw$done" pg_catalog.bool;
                "tw$any" pg_catalog.bool;
                "tw$held" record;
                "tw$isHeld" pg_catalog.bool := false;
            BEGIN
                "tw$who" := 0;
                FOREACH "tw$one" IN ARRAY "tw$claims" LOOP
                    "tw$who" := "tw$who" + 1;
                    "tw$element" := NULL;
            \(step(inFunction, after: hold))
            \(stepsByElement)
                END LOOP;
            END
            """
        let quote = ClaimsScript.dollarQuote(notIn: body)
        return """
            CREATE FUNCTION pg_temp.\(name)("tw$claims" pg_catalog.text[]\(inputs))
            RETURNS TABLE ("tw$who" pg_catalog.int4, "tw$element" pg_catalog.int4, "tw$error" pg_catalog.text\(outputs))
            LANGUAGE plpgsql AS \(quote)\(body)\(quote)
            """
    }

    /// Where the first few all fail it is the claims that fail: element 0 says so of all.
    private var stepsByElement: String {
        guard shape == .whole, inputCount > 0 else { return "" }
        return """
            IF "tw$error" IS NOT NULL AND pg_catalog.cardinality(\(ClaimsScript.variable(0))) > 1 THEN
                "tw$any" := false;
                FOR "tw$index" IN 1 .. pg_catalog.cardinality(\(ClaimsScript.variable(0))) LOOP
                    "tw$element" := "tw$index";
            \(step(inFunctionByElement))
                    "tw$any" := "tw$any" OR "tw$done";
                    IF NOT "tw$any" AND "tw$index" >= \(ClaimsScript.elementsTried) THEN
                        "tw$element" := 0;
                        RETURN NEXT;
                        EXIT;
                    END IF;
                END LOOP;
            END IF;
            """
    }

    private static let elementsTried = 8

    /// In the first step that can: made under a client's role, and kept where no rollback reaches.
    private var hold: String {
        guard let held else { return "" }
        return """
            IF NOT "tw$isHeld" THEN
                SELECT \(held) AS "tw$made" INTO "tw$held";
                "tw$isHeld" := true;
            END IF;
            """
    }

    /// One subtransaction, rolled back in any case. Its last word is an exception, which also ends it when all is well.
    private func step(_ sql: String, after first: String = "") -> String {
        let outputs = (0..<outputCount).map { "\"tw$output\($0)\"" }.joined(separator: ", ")
        let none = (0..<outputCount).map { "\"tw$output\($0)\" := NULL; " }.joined()
        let ask =
            switch shape {
            case .whole: "SELECT * INTO \(outputs) FROM (\(sql)\n) AS \"tw$answer\";"
            case .rows: "FOR \(outputs) IN \(sql) LOOP RETURN NEXT; END LOOP;"
            }
        return """
            "tw$done" := false;
            "tw$error" := NULL;
            \(none)
            BEGIN
                \(claimsAndRole)
                \(first)
                \(ask)
                "tw$done" := true;
                RAISE EXCEPTION USING ERRCODE = '\(ClaimsScript.undo)';
            EXCEPTION WHEN OTHERS OR assert_failure THEN
                IF NOT "tw$done" THEN
                    "tw$error" := SQLSTATE;
                    \(none)
                END IF;
            END;
            \(isReturned)
            """
    }

    private var isReturned: String {
        let outputs = (0..<outputCount).map { ", \"tw$output\($0)\"" }.joined()
        return switch shape {
        // Nothing but NULL is not worth a row.
        case .whole:
            """
            IF pg_catalog.num_nonnulls("tw$error"\(outputs)) > 0 THEN
                RETURN NEXT;
            END IF;
            """
        case .rows:
            """
            IF "tw$error" IS NOT NULL THEN
                RETURN NEXT;
            END IF;
            """
        }
    }

    private var claimsAndRole: String {
        let role = self.role.map { ", pg_catalog.set_config('role', \(Quoted.literal($0)), true)" } ?? ""
        return "PERFORM pg_catalog.set_config('request.jwt.claims', \"tw$one\", true)\(role);"
    }

    /// Of no class that PostgreSQL uses.
    private static let undo = "TWUND"

    private static func dollarQuote(notIn text: String) -> String {
        var number = 0
        while text.contains("$tidewire\(number)$") { number += 1 }
        return "$tidewire\(number)$"
    }
}
