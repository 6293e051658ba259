import Policy
import Postgres

/// Query that PostgreSQL runs under many claims of one role, one after the other: as a function that loops over the
/// claims, or, where no function can be created, as one statement for each.
///
/// Each step sets the claims and the role again. Each step is a subtransaction that is rolled back, so that effects of
/// a policy's functions do not reach the next step.
public struct ClaimsScript: Sendable, Hashable {
    public enum Shape: Sendable, Hashable {
        /// One row for each set of claims. If the query fails and the inputs have several elements, each element is
        /// tried separately.
        case whole
        /// Any number of rows for each set of claims.
        case rows
    }

    /// Role of the query; nil keeps the connection's role.
    public let role: String?
    public let shape: Shape
    /// Number of inputs, each an array of texts.
    public let inputCount: Int
    /// Number of outputs, each a text.
    public let outputCount: Int
    /// SQL expression for a value that is computed once from the inputs and is the same under all claims.
    private let held: String?
    /// SQL of the query with the inputs as the function's variables.
    private let inFunction: String
    /// SQL of the query in the function, restricted to one element of the inputs.
    private let inFunctionByElement: String
    /// SQL of the query with the inputs as parameters of a statement.
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

// MARK: Queries

extension ClaimsScript {
    /// Creates the query whether each row may be read. The answer has one digit a row, in order: `1` or `0`, without
    /// trailing zeros; NULL if no row may be read.
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

    /// Creates the query for the texts of terms.
    public init(evaluating terms: [AskedTerm], as role: String) {
        self.init(as: role, .whole, inputs: 0, outputs: terms.count) { _ in
            "SELECT " + terms.map(ClaimsScript.text).joined(separator: ", ")
        }
    }

    /// Returns SQL for the term's text. Timestamps are written in UTC as in the replication stream, because the session
    /// has the client's time zone.
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

    /// Oid of `timestamptz`.
    private static let momentType: UInt32 = 1184

    /// Creates the query for membership keys and their numbers of occurrences.
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
    /// Returns the SQL that creates the function. Its rows contain the claims' number from 1, the element's number if
    /// elements were tried separately, the error code or NULL, and the outputs.
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

    /// SQL that tries each element separately after a failure. If the first few all fail, the claims are the cause, and
    /// a row with element 0 reports the failure for all elements.
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

    /// SQL that computes the held value in the first step where that succeeds. It runs under a client's role, and the
    /// value survives the rollback.
    private var hold: String {
        guard let held else { return "" }
        return """
            IF NOT "tw$isHeld" THEN
                SELECT \(held) AS "tw$made" INTO "tw$held";
                "tw$isHeld" := true;
            END IF;
            """
    }

    /// Returns SQL for one subtransaction that is always rolled back. It ends with an exception even after success.
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
        // A row of NULLs only would say nothing.
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

    /// SQLSTATE of a class that PostgreSQL does not use.
    private static let undo = "TWUND"

    private static func dollarQuote(notIn text: String) -> String {
        var number = 0
        while text.contains("$tidewire\(number)$") { number += 1 }
        return "$tidewire\(number)$"
    }
}
